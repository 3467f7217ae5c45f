-- Returns the keys of READY nodes of the given workflows that can be enqueued now, at most `most` of each, in their order: nodes,
-- and as many elements of every map as it has free places (F-95). Maps are found by their READY elements. The elements of one
-- map have consecutive indexes, so the search jumps from the end of one map to the first READY element of the next, and always
-- forward, whatever the options of the map say.
-- The status is compared as a range and is part of the order; otherwise the planner would use the index of all nodes in flight.
WITH RECURSIVE maps(workflow_id, first, past, places) AS (
    SELECT w.id, -1, 0, 0 FROM unnest(%(ids)s::text[]) AS w(id)
    UNION ALL
    SELECT m.workflow_id, n.first, GREATEST(n.first + n.count, e.task_index + 1), n.places
    FROM maps m CROSS JOIN LATERAL (
        SELECT map_index, task_index FROM horsies_workflow_tasks
        WHERE workflow_id = m.workflow_id AND (status, task_index) >= ('READY', m.past) AND status <= 'READY'
          AND node_type = 'ELEMENT'
        ORDER BY status, task_index LIMIT 1
    ) e CROSS JOIN LATERAL (
        SELECT jsonb_path_query_first(map_options, '$.first ? (@ >= 0 && @ <= 1e9)')::int AS first, jsonb_path_query_first(map_options, '$.count ? (@ >= 0 && @ <= 1e9)')::int AS count,
               COALESCE(jsonb_path_query_first(map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int, 2147483647) AS places
        FROM horsies_workflow_tasks WHERE workflow_id = m.workflow_id AND task_index = e.map_index OFFSET 0
    ) n
)
SELECT n.workflow_id, n.task_index
FROM unnest(%(ids)s::text[]) AS w(id) CROSS JOIN LATERAL (
    -- Sub-workflow nodes stay READY until they are built, and must not hide the others.
    (SELECT workflow_id, task_index FROM horsies_workflow_tasks
     WHERE workflow_id = w.id AND status >= 'READY' AND status <= 'READY' AND node_type IN ('TASK', 'MAP')
     ORDER BY status, task_index LIMIT %(most)s)
    UNION ALL
    (SELECT workflow_id, task_index FROM horsies_workflow_tasks
     WHERE workflow_id = w.id AND status >= 'READY' AND status <= 'READY' AND node_type = 'SUBWORKFLOW'
     ORDER BY status, task_index LIMIT %(most)s)
) n
UNION ALL
SELECT e.workflow_id, e.task_index
FROM maps m CROSS JOIN LATERAL (
    SELECT workflow_id, task_index FROM horsies_workflow_tasks
    WHERE workflow_id = m.workflow_id AND (status, task_index) >= ('READY', m.first)
      AND (status, task_index) < ('READY', m.past)
    ORDER BY status, task_index
    LIMIT LEAST(%(most)s, GREATEST(0, m.places - CASE WHEN m.places < 2147483647 THEN (
        SELECT count(*)::int FROM horsies_workflow_tasks f
        WHERE f.workflow_id = m.workflow_id AND f.status IN ('ENQUEUED', 'RUNNING')
          AND f.task_index >= m.first AND f.task_index < m.past) ELSE 0 END))
) e
WHERE m.first >= 0
