-- Locks the nodes of tasks that are about to start, before their tasks (D-63). Returns what decides whether they may start
-- (L-25): the state of their workflow, and whether the deadline of the task has passed, which is checked first.
-- A node that another process has locked is left out, because waiting for it would hold up every other start. A statement that
-- never waits does not need to lock in an order.
SELECT n.task_id, n.status,
       -- These are scalar subqueries, because a join could be planned as a hash of every workflow and every task.
       (SELECT w.status FROM horsies_workflows w WHERE w.id = n.workflow_id),
       (SELECT COALESCE(t.good_until <= now(), FALSE) FROM horsies_tasks t WHERE t.id = n.task_id)
FROM unnest(%(ids)s::text[]) AS s(id) CROSS JOIN LATERAL (
    SELECT task_id, status, workflow_id FROM horsies_workflow_tasks WHERE task_id = s.id FOR NO KEY UPDATE SKIP LOCKED
) n
