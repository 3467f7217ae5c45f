-- Says whether all nodes of this workflow exist. Retention deletes them before the workflow itself (R-84).
SELECT count(*) > 0 AND count(*) = max(task_index) + 1 FROM horsies_workflow_tasks WHERE workflow_id = %(id)s
