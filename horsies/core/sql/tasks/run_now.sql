-- Waiting tasks that are due later, or are to be tried again later, are due at once (L-21b): nothing else about them changes. A task
-- of a workflow that is paused or has ended, and one whose deadline has passed, would not be claimed, and is left alone. The bell is
-- rung as after a requeue (L-21), because the trigger rings only for inserts.
-- By the clock, and not by the time of the statement: whoever waited for another one's change must see that it is due.
WITH locked AS (
    SELECT id, GREATEST(enqueued_at, next_retry_at) AS due FROM horsies_tasks p
    WHERE id = ANY(%(ids)s::text[]) AND status = 'PENDING' AND GREATEST(enqueued_at, next_retry_at) > clock_timestamp()
      AND (good_until IS NULL OR good_until > statement_timestamp())
      AND (workflow_id IS NULL
           OR (SELECT w.status FROM horsies_workflows w WHERE w.id = p.workflow_id) IN ('PENDING', 'RUNNING'))
    ORDER BY id FOR UPDATE
), changed AS (
    UPDATE horsies_tasks t
    SET enqueued_at = LEAST(t.enqueued_at, statement_timestamp()), updated_at = now(),
        next_retry_at = CASE WHEN t.next_retry_at IS NOT NULL THEN LEAST(t.next_retry_at, statement_timestamp()) END
    FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
    RETURNING t.id, t.queue_name, l.due
)
SELECT id, due, horsies_ring(queue_name, id, NULL) FROM changed
