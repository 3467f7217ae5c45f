-- PENDING → EXPIRED (L-07) for at most `most` tasks whose deadline passed while they waited, the oldest deadline first;
-- of `only` these if they are named.
WITH overdue AS (
    SELECT ctid AS at FROM horsies_tasks WHERE is_waiting AND good_until IS NOT NULL AND good_until <= now()
      AND (%(only)s::text[] IS NULL OR id = ANY(%(only)s::text[]))
    ORDER BY good_until LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE horsies_tasks t
SET status = 'EXPIRED', result = %(result)s, error_code = 'TASK_EXPIRED', updated_at = now()
FROM overdue o WHERE t.ctid = o.at  -- by id, the planner might walk the whole primary key
RETURNING t.id, t.workflow_id, t.queue_name, t.task_name
