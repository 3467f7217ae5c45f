-- The last index that a node of this workflow has: elements come after it (F-95).
SELECT max(task_index) FROM horsies_workflow_tasks WHERE workflow_id = %(id)s
