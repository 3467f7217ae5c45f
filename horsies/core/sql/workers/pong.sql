-- A worker's answers to pings.
SELECT pg_notify('horsies_worker_pong', p) FROM unnest(%(payloads)s::text[]) AS p
