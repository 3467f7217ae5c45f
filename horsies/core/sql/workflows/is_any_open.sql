-- Whether the looks of reconciliation can find anything at all: a node in flight, a running workflow of which every node has
-- ended, a workflow past its deadline, or a held task. Each part is the first entry of an index.
SELECT COALESCE(
    (SELECT TRUE FROM horsies_workflow_tasks WHERE status IN ('READY', 'ENQUEUED', 'RUNNING')
     ORDER BY workflow_id, task_index LIMIT 1),
    (SELECT TRUE FROM horsies_workflows WHERE is_over ORDER BY id LIMIT 1),
    (SELECT TRUE FROM horsies_workflows
     WHERE good_until IS NOT NULL AND status IN ('PENDING', 'RUNNING', 'PAUSED') AND good_until <= now()
     ORDER BY good_until, id LIMIT 1),
    (SELECT TRUE FROM horsies_tasks WHERE is_held AND is_waiting ORDER BY workflow_id LIMIT 1), FALSE)
