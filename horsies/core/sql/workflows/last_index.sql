-- Returns the last index of a node of this workflow; the elements of a map get the indexes after it (F-95).
SELECT max(task_index) FROM horsies_workflow_tasks WHERE workflow_id = %(id)s
