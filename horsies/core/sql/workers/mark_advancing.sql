-- A worker whose line of ends is long says how far it is (R-31): everything that ended here in the last `age` seconds may still
-- be in it, and these workflows have more to enqueue, or a parent to tell. Only a worker that has just advanced something says so.
UPDATE horsies_workers
SET metadata = metadata || jsonb_build_object('advancing', jsonb_build_object(
        'at', extract(epoch FROM now()), 'since', extract(epoch FROM now()) - %(age)s::float8, 'flows', to_jsonb(%(flows)s::text[])))
WHERE worker_id = %(worker_id)s
