-- A node with the state of its workflow, and the first nodes or elements of a map that it waits for.
SELECT now(), n.workflow_id, w.name, w.status, w.paused_at, n.task_index, n.node_id, n.node_type, n.task_name, n.status,
       n.task_id, n.sub_workflow_id, n.map_index, n.join_type, n.min_success, n.deps_total, n.deps_completed, n.deps_failed,
       n.deps_skipped, n.error_code, n.ready_at, n.started_at, n.completed_at,
       ARRAY(SELECT format('%%s (%%s): %%s', d.node_id, d.task_index, d.status) FROM (
           SELECT node_id, task_index, status FROM horsies_workflow_tasks
           WHERE workflow_id = n.workflow_id AND status IN ('PENDING', 'READY', 'ENQUEUED', 'RUNNING')
             AND CASE WHEN n.node_type = 'MAP' AND n.status = 'RUNNING' THEN map_index = n.task_index
                      ELSE task_index = ANY(n.dependencies) END
           ORDER BY task_index LIMIT %(most)s) d)
FROM horsies_workflow_tasks n JOIN horsies_workflows w ON w.id = n.workflow_id
WHERE n.workflow_id = %(workflow_id)s AND n.task_index = %(task_index)s
