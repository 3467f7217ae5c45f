-- Returns the results of the elements of one map, in the order of the list.
SELECT status, result, error_code FROM horsies_workflow_tasks
WHERE workflow_id = %(id)s AND map_index = %(index)s AND node_type = 'ELEMENT'
  AND task_index >= (SELECT jsonb_path_query_first(map_options, '$.first ? (@ >= 0 && @ <= 1e9)')::int FROM horsies_workflow_tasks
                     WHERE workflow_id = %(id)s AND task_index = %(index)s)
ORDER BY task_index
