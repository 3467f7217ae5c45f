-- What reconciliation looks for (R-30 to R-38): nodes in flight in the order in which they are locked, running workflows that
-- have no open node, workflows past their deadline. `is_over` is a column of its own because an index that mentions
-- `open_nodes`, which changes with every node's end, would make each of these updates write every index anew.
-- Most nodes have no child workflow: they need no entry there. READY elements of a map are taken in their order.
ALTER TABLE horsies_workflows
    ADD COLUMN is_over BOOLEAN GENERATED ALWAYS AS (status = 'RUNNING' AND open_nodes = 0) STORED NOT NULL;
CREATE INDEX horsies_workflows_over_idx ON horsies_workflows (id) WHERE is_over;
CREATE INDEX horsies_workflows_deadline_idx ON horsies_workflows (good_until, id)
    WHERE good_until IS NOT NULL AND status IN ('PENDING', 'RUNNING', 'PAUSED');
CREATE INDEX horsies_workflow_tasks_in_flight_idx ON horsies_workflow_tasks (workflow_id, task_index)
    WHERE status IN ('READY', 'ENQUEUED', 'RUNNING');

DROP INDEX horsies_workflow_tasks_sub_workflow_id_idx;
CREATE INDEX horsies_workflow_tasks_sub_workflow_id_idx ON horsies_workflow_tasks (sub_workflow_id)
    WHERE sub_workflow_id IS NOT NULL;

DROP INDEX horsies_workflow_tasks_status_idx;
CREATE INDEX horsies_workflow_tasks_status_idx ON horsies_workflow_tasks (workflow_id, status, task_index);
