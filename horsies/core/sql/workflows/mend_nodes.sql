-- Brings the dates and counters of the nodes of the given workflows back within the limits (D-14), as `mend` does for the
-- workflows, which are already locked; returns what was outside. The counters of a node are counted again: over its
-- dependencies, or over its elements for a map that has them (D-50). `task_index` stays: other nodes name it.
WITH odd AS (
    SELECT n.id, o.odd, n.map_options -> 'first' IS NOT NULL AS has_elements
    FROM horsies_workflow_tasks n CROSS JOIN LATERAL (
        SELECT array_agg(v.name || ' is ' || v.value) AS odd FROM (
            SELECT d.name, d.at::text AS value FROM (VALUES
                ('good_until', n.good_until), ('created_at', n.created_at), ('updated_at', n.updated_at), ('ready_at', n.ready_at),
                ('enqueued_at', n.enqueued_at), ('started_at', n.started_at), ('completed_at', n.completed_at)
            ) AS d(name, at) WHERE d.at < '0001-01-01Z' OR d.at >= '10000-01-01Z'
            UNION ALL
            SELECT c.name, c.count::text FROM (VALUES
                ('deps_total', n.deps_total), ('deps_completed', n.deps_completed), ('deps_failed', n.deps_failed),
                ('deps_skipped', n.deps_skipped)
            ) AS c(name, count) WHERE c.count NOT BETWEEN 0 AND 1000000000
        ) v
    ) o
    WHERE n.workflow_id = ANY(%(ids)s::text[]) AND n.task_index BETWEEN 0 AND 1000000000 AND o.odd IS NOT NULL
    ORDER BY n.workflow_id, n.task_index FOR NO KEY UPDATE OF n
), counted AS (
    SELECT o.id, o.odd, c.* FROM odd o CROSS JOIN LATERAL (
        SELECT * FROM horsies_workflow_tasks WHERE id = o.id OFFSET 0
    ) n CROSS JOIN LATERAL (
        SELECT count(*) AS total, count(*) FILTER (WHERE d.status = 'COMPLETED') AS completed,
               count(*) FILTER (WHERE d.status = 'FAILED') AS failed, count(*) FILTER (WHERE d.status = 'SKIPPED') AS skipped
        FROM horsies_workflow_tasks d
        WHERE d.workflow_id = n.workflow_id
          AND CASE WHEN o.has_elements THEN d.map_index = n.task_index ELSE d.task_index = ANY(n.dependencies) END
    ) c
)
UPDATE horsies_workflow_tasks n
SET good_until = CASE WHEN n.good_until IS NOT NULL THEN LEAST(GREATEST(n.good_until, m.first), m.last) END,
    created_at = LEAST(GREATEST(n.created_at, m.first), m.last),
    ready_at = CASE WHEN n.ready_at IS NOT NULL THEN LEAST(GREATEST(n.ready_at, m.first), m.last) END,
    enqueued_at = CASE WHEN n.enqueued_at IS NOT NULL THEN LEAST(GREATEST(n.enqueued_at, m.first), m.last) END,
    started_at = CASE WHEN n.started_at IS NOT NULL THEN LEAST(GREATEST(n.started_at, m.first), m.last) END,
    completed_at = CASE WHEN n.completed_at IS NOT NULL THEN LEAST(GREATEST(n.completed_at, m.first), m.last) END,
    deps_total = CASE WHEN n.deps_total BETWEEN 0 AND 1000000000 THEN n.deps_total ELSE c.total END,
    deps_completed = CASE WHEN n.deps_completed BETWEEN 0 AND 1000000000 THEN n.deps_completed ELSE c.completed END,
    deps_failed = CASE WHEN n.deps_failed BETWEEN 0 AND 1000000000 THEN n.deps_failed ELSE c.failed END,
    deps_skipped = CASE WHEN n.deps_skipped BETWEEN 0 AND 1000000000 THEN n.deps_skipped ELSE c.skipped END,
    updated_at = now()
FROM counted c CROSS JOIN (VALUES ('0001-01-01Z'::timestamptz, '9999-12-31Z'::timestamptz)) AS m(first, last)
WHERE n.id = c.id
RETURNING n.workflow_id, n.node_id, c.odd
