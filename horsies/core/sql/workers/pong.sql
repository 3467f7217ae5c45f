-- A worker's answer to a ping.
SELECT pg_notify('horsies_worker_pong', %(payload)s)
