-- RUNNING → PENDING for a task whose arguments this worker cannot read, and which it leaves to others (L-13b): as `requeue`, but due
-- again after a pause that grows, so that those behind it have their turn. The first time is noted. A task that was left
-- longer ago than `grace` is not moved and not returned.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(graces)s::float8[], %(reasons)s::text[])
             AS w(id, claim_seq, grace, reason)
    ORDER BY id
), locked AS (
    SELECT t.id, w.reason, COALESCE((SELECT extract(epoch FROM now() - f.left_at) FROM horsies_left_tasks f WHERE f.task_id = w.id), 0) AS age,
           w.grace
    FROM wanted w CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = w.id AND claim_seq = w.claim_seq AND status = 'RUNNING' AND claimed_by_worker_id = %(worker_id)s
        FOR UPDATE
    ) t
), noted AS (
    INSERT INTO horsies_left_tasks (task_id, reason) SELECT id, reason FROM locked WHERE age < grace ON CONFLICT (task_id) DO NOTHING
), moved AS (
    UPDATE horsies_tasks t
    SET status = 'PENDING', claimed = FALSE, claimed_at = NULL, claimed_by_worker_id = NULL, claim_expires_at = NULL,
        finalizing_at = NULL, recovery_enrolled = FALSE,
        enqueued_at = now() + make_interval(secs => LEAST(GREATEST(l.age / 4, 1), 30, l.grace)),
        started_at = NULL, worker_pid = NULL, worker_hostname = NULL, worker_process_name = NULL, updated_at = now()
    FROM locked l WHERE l.age < l.grace AND t.id = l.id AND t.id = ANY(%(ids)s::text[])
    RETURNING t.id, t.queue_name, t.enqueued_at
)
SELECT id, CASE WHEN row_number() OVER (PARTITION BY queue_name ORDER BY enqueued_at, id) = 1
                THEN horsies_ring(queue_name, id, %(worker_id)s) END FROM moved
