-- READY nodes of these workflows that can be enqueued now, at most `most` of each, in their order: nodes,
-- and of every map as many elements as it has free places (F-95). Their keys only.
SELECT n.workflow_id, n.task_index
FROM unnest(%(ids)s::text[]) AS w(id) CROSS JOIN LATERAL (
    (SELECT workflow_id, task_index FROM horsies_workflow_tasks
     WHERE workflow_id = w.id AND status = 'READY' AND node_type <> 'ELEMENT'
     ORDER BY task_index LIMIT %(most)s)
    UNION ALL
    (SELECT e.workflow_id, e.task_index
     FROM horsies_workflow_tasks m
     CROSS JOIN LATERAL (
         SELECT (m.map_options ->> 'first')::int AS first, (m.map_options ->> 'count')::int AS count,
                COALESCE((m.map_options ->> 'max_parallel')::int, %(most)s) AS places
     ) o
     CROSS JOIN LATERAL (
         SELECT workflow_id, task_index FROM horsies_workflow_tasks
         WHERE workflow_id = m.workflow_id AND status = 'READY' AND task_index >= o.first AND task_index < o.first + o.count
         ORDER BY task_index
         LIMIT LEAST(%(most)s, GREATEST(0, CASE WHEN m.map_options ->> 'max_parallel' IS NULL THEN %(most)s ELSE o.places - (
             SELECT count(*) FROM horsies_workflow_tasks f
             WHERE f.workflow_id = m.workflow_id AND f.status IN ('ENQUEUED', 'RUNNING')
               AND f.task_index >= o.first AND f.task_index < o.first + o.count) END))
     ) e
     WHERE m.workflow_id = w.id AND m.status = 'RUNNING' AND m.node_type = 'MAP'
     LIMIT %(most)s)
) n
