-- The first node whose failure has paused its workflow (F-41). That is done in one transaction, so both have the same time.
SELECT n.node_id, n.error_code FROM horsies_workflows w
JOIN horsies_workflow_tasks n ON n.workflow_id = w.id AND n.status = 'FAILED' AND n.completed_at = w.paused_at
WHERE w.id = %(workflow_id)s AND w.on_error = 'PAUSE' AND n.node_type <> 'ELEMENT'
ORDER BY n.task_index LIMIT 1
