-- PENDING, CLAIMED and, if asked for, RUNNING → CANCELLED (L-17, L-18, L-19). The owner of a running one is told at once,
-- so that it stops the code; its later result matches nothing. Tasks of workflows are cancelled with their workflow only (F-53).
WITH locked AS (
    SELECT id, status AS was FROM horsies_tasks
    WHERE id = ANY(%(ids)s::text[]) AND (workflow_id IS NULL OR %(with_workflow)s)
      AND (status IN ('PENDING', 'CLAIMED') OR (status = 'RUNNING' AND %(include_running)s))
    ORDER BY id FOR UPDATE
), moved AS (
    UPDATE horsies_tasks t
    SET status = 'CANCELLED', claimed = FALSE, claim_expires_at = NULL, result = %(result)s, error_code = 'TASK_CANCELLED',
        updated_at = now()
    FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
    RETURNING t.id, l.was, t.queue_name, t.task_name
)
SELECT id, was, queue_name, task_name, CASE WHEN was <> 'PENDING' THEN pg_notify('horsies_claim_lost', id) END FROM moved
