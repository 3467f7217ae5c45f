-- Asks the workers to show themselves on horsies_worker_pong.
SELECT pg_notify('horsies_worker_ping', %(question)s)
