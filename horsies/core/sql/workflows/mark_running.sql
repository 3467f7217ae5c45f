-- ENQUEUED → RUNNING for the nodes of the given tasks, which the same transaction has made RUNNING (F-21, L-09) after it has
-- locked the nodes. A node whose task is started again, after a retry or a recovery, is RUNNING already and stays RUNNING.
-- Nodes are looked up by task and filtered by state separately; together they could become a scan of all nodes in flight.
UPDATE horsies_workflow_tasks
SET status = 'RUNNING', started_at = now(), updated_at = now()
WHERE ctid = ANY(ARRAY(
    SELECT n.at FROM unnest(%(ids)s::text[]) AS s(id) CROSS JOIN LATERAL (
        SELECT ctid AS at, status FROM horsies_workflow_tasks WHERE task_id = s.id OFFSET 0
    ) n WHERE n.status = 'ENQUEUED'
))
