-- Asks a worker to drain (W-55): it learns of it at once, or with its next heartbeat.
UPDATE horsies_workers SET drain_requested_at = now() WHERE worker_id = %(worker_id)s
RETURNING drain_requested_at, pg_notify('horsies_worker_ping', json_build_object('drain', worker_id)::text)
