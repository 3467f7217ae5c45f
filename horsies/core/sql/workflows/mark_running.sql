-- ENQUEUED → RUNNING for the nodes of these tasks, which the same transaction has made RUNNING (F-21, L-09). It has locked
-- the nodes before. A node whose task is started again, after a retry or a recovery, is RUNNING already and stays so.
UPDATE horsies_workflow_tasks
SET status = 'RUNNING', started_at = now(), updated_at = now()
WHERE task_id = ANY(%(ids)s::text[]) AND status = 'ENQUEUED'
