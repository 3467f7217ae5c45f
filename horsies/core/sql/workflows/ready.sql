-- Returns the keys of READY nodes of the given workflows that can be enqueued now, at most `most` of each, in their order: nodes,
-- and as many elements of every map as it has free places (F-95). It reads about as many rows as it returns, however many are
-- READY. Elements have higher indexes than all nodes, and those of one map are consecutive. So maps are found from the end: the
-- search jumps from the last READY element to the first element of its map, and always backward, whatever the options of the map
-- say; a READY row that is no element ends it.
-- The status is compared as a range and is part of the order; otherwise the planner would use the index of all nodes in flight,
-- which has the READY ones too.
WITH RECURSIVE maps(workflow_id, first, past, places, below) AS (
    SELECT w.id, -1, 0, 0, 2147483647 FROM unnest(%(ids)s::text[]) AS w(id)
    UNION ALL
    SELECT m.workflow_id, n.first, LEAST(GREATEST(n.first + n.count, e.task_index + 1), m.below), n.places, LEAST(n.first, e.task_index)
    FROM maps m CROSS JOIN LATERAL (
        SELECT node_type, map_index, task_index FROM horsies_workflow_tasks
        WHERE workflow_id = m.workflow_id AND (status, task_index) < ('READY', m.below) AND status >= 'READY'
        ORDER BY status DESC, task_index DESC LIMIT 1
    ) e CROSS JOIN LATERAL (
        SELECT jsonb_path_query_first(map_options, '$.first ? (@ >= 0 && @ <= 1e9)')::int AS first, jsonb_path_query_first(map_options, '$.count ? (@ >= 0 && @ <= 1e9)')::int AS count,
               COALESCE(jsonb_path_query_first(map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int, 2147483647) AS places
        FROM horsies_workflow_tasks WHERE workflow_id = m.workflow_id AND task_index = e.map_index OFFSET 0
    ) n
    WHERE e.node_type = 'ELEMENT'
)
SELECT w.id, n.task_index
FROM (SELECT workflow_id AS id, min(below) AS below FROM maps GROUP BY workflow_id) w CROSS JOIN LATERAL (
    WITH tasks AS MATERIALIZED (
        SELECT task_index FROM horsies_workflow_tasks
        WHERE workflow_id = w.id AND status >= 'READY' AND (status, task_index) < ('READY', w.below) AND node_type IN ('TASK', 'MAP')
        ORDER BY status, task_index LIMIT %(most)s
    )
    SELECT task_index FROM tasks
    UNION ALL
    -- Sub-workflow nodes stay READY until they are built, and must not hide the others. If there are more of those, it is the
    -- turn of the sub-workflows among the first: those behind follow with the next ones.
    (SELECT task_index FROM horsies_workflow_tasks
     WHERE workflow_id = w.id AND status >= 'READY' AND node_type = 'SUBWORKFLOW'
       AND (status, task_index) < ('READY', (SELECT CASE WHEN count(*) < %(most)s THEN w.below ELSE max(task_index) END FROM tasks))
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
        SELECT count(*)::int FROM (VALUES ('ENQUEUED'), ('RUNNING')) AS s(status) CROSS JOIN LATERAL (
            SELECT FROM horsies_workflow_tasks WHERE workflow_id = m.workflow_id AND (status, task_index) >= (s.status, m.first)
              AND (status, task_index) < (s.status, m.past) OFFSET 0
        ) f) ELSE 0 END))
) e
WHERE m.first >= 0
