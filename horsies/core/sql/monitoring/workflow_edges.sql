-- The first edges of a workflow: what each node waits for.
SELECT d.source, n.task_index
FROM (SELECT task_index, dependencies FROM horsies_workflow_tasks WHERE workflow_id = %(workflow_id)s ORDER BY task_index) n
CROSS JOIN LATERAL unnest(n.dependencies) AS d(source)
ORDER BY n.task_index LIMIT %(most)s
