-- Another queue, or another priority, for waiting tasks that belong to no workflow (L-21a); NULL leaves it as it is. A task that is
-- there already is left alone. The bell is rung as after a requeue (L-21): for what is due, and for the first that is due later.
WITH locked AS (
    SELECT id FROM horsies_tasks
    WHERE id = ANY(%(ids)s::text[]) AND status = 'PENDING' AND workflow_id IS NULL
      AND (queue_name, priority) IS DISTINCT FROM (COALESCE(%(queue)s::text, queue_name), COALESCE(%(priority)s::int, priority))
    ORDER BY id FOR UPDATE
), changed AS (
    UPDATE horsies_tasks t
    SET queue_name = COALESCE(%(queue)s::text, t.queue_name), priority = COALESCE(%(priority)s::int, t.priority), updated_at = now()
    FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
    RETURNING t.id, t.queue_name, t.enqueued_at
)
SELECT id, CASE WHEN enqueued_at <= now() OR row_number() OVER (PARTITION BY queue_name ORDER BY enqueued_at, id) = 1
                THEN horsies_ring(queue_name, id, NULL) END FROM changed
