-- The nodes of tasks that are about to start, locked before their tasks (D-63), with what decides whether they may (L-25): the
-- state of their workflow, and whether the deadline of the task has passed, which goes before that.
-- A node that somebody else has is not there: whoever waited for it here would hold up everything else that starts. And who
-- never waits need not keep to an order.
SELECT n.task_id, n.status,
       -- As values: a join could be planned as a hash of every workflow and every task.
       (SELECT w.status FROM horsies_workflows w WHERE w.id = n.workflow_id),
       (SELECT COALESCE(t.good_until <= now(), FALSE) FROM horsies_tasks t WHERE t.id = n.task_id)
FROM unnest(%(ids)s::text[]) AS s(id) CROSS JOIN LATERAL (
    SELECT task_id, status, workflow_id FROM horsies_workflow_tasks WHERE task_id = s.id FOR NO KEY UPDATE SKIP LOCKED
) n
