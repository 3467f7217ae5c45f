-- PENDING → FAILED (L-11a) for those of these tasks whose name no live worker has known for `grace` (O-31). A worker is alive by its own
-- heartbeats, until three of them have failed to come; one of an older version does not say what it knows, and may know it.
-- `names_hash` is the set of the worker that judges: only if there has been such a worker all the time has nobody come who could
-- have known the name.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(results)s::text[], %(reasons)s::text[]) AS w(id, result, reason)
), lives AS MATERIALIZED (
    SELECT names_hash, horsies_alive_until(last_heartbeat_at, recovery) AS until
    FROM horsies_workers
), known AS MATERIALIZED (
    SELECT DISTINCT unnest(k.names) AS name FROM horsies_known_names k
    WHERE k.seen_at > now() - make_interval(secs => %(grace)s) OR k.names_hash IN (
        SELECT names_hash FROM lives WHERE until > now() - make_interval(secs => %(grace)s))
), orphans AS (
    SELECT id FROM horsies_tasks
    WHERE is_waiting AND id = ANY(%(ids)s::text[]) AND enqueued_at <= now() - make_interval(secs => %(grace)s)
      AND task_name NOT IN (SELECT name FROM known WHERE name IS NOT NULL)
      AND NOT EXISTS (SELECT FROM lives WHERE names_hash IS NULL AND until > now())
      AND EXISTS (SELECT FROM horsies_known_names
                  WHERE names_hash = %(names_hash)s AND since <= now() - make_interval(secs => %(grace)s))
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE horsies_tasks t
SET status = 'FAILED', failed_at = now(), result = w.result, error_code = 'WORKER_RESOLUTION_ERROR', failed_reason = w.reason,
    updated_at = now()
FROM wanted w WHERE w.id = t.id AND t.id = ANY(ARRAY(SELECT id FROM orphans))
RETURNING t.id, t.workflow_id, t.queue_name, t.task_name
