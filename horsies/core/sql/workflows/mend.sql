-- Brings the dates and counters of the given workflows back within the limits (D-14), because a row outside cannot be changed
-- at all; returns what was outside. What can be counted is counted again. The status stays. The rows are already locked.
WITH odd AS (
    SELECT w.id, o.odd FROM horsies_workflows w CROSS JOIN LATERAL (
        SELECT array_agg(v.name || ' is ' || v.value) AS odd FROM (
            SELECT d.name, d.at::text AS value FROM (VALUES
                ('good_until', w.good_until), ('sent_at', w.sent_at), ('created_at', w.created_at), ('updated_at', w.updated_at),
                ('started_at', w.started_at), ('paused_at', w.paused_at), ('completed_at', w.completed_at)
            ) AS d(name, at) WHERE d.at < '0001-01-01Z' OR d.at >= '10000-01-01Z'
            UNION ALL
            SELECT c.name, c.count::text FROM (VALUES ('depth', w.depth), ('open_nodes', w.open_nodes)) AS c(name, count)
            WHERE c.count NOT BETWEEN 0 AND 1000000000
        ) v
    ) o
    WHERE w.id = ANY(%(ids)s::text[]) AND o.odd IS NOT NULL
)
UPDATE horsies_workflows w
SET good_until = CASE WHEN w.good_until IS NOT NULL THEN LEAST(GREATEST(w.good_until, m.first), m.last) END,
    sent_at = LEAST(GREATEST(w.sent_at, m.first), m.last),
    created_at = LEAST(GREATEST(w.created_at, m.first), m.last),
    started_at = CASE WHEN w.started_at IS NOT NULL THEN LEAST(GREATEST(w.started_at, m.first), m.last) END,
    paused_at = CASE WHEN w.paused_at IS NOT NULL THEN LEAST(GREATEST(w.paused_at, m.first), m.last) END,
    completed_at = CASE WHEN w.completed_at IS NOT NULL THEN LEAST(GREATEST(w.completed_at, m.first), m.last) END,
    depth = LEAST(GREATEST(w.depth, 0), 1000000000),
    open_nodes = CASE WHEN w.open_nodes BETWEEN 0 AND 1000000000 THEN w.open_nodes ELSE (
        SELECT count(*) FROM horsies_workflow_tasks n
        WHERE n.workflow_id = w.id AND n.node_type <> 'ELEMENT' AND n.status NOT IN ('COMPLETED', 'FAILED', 'SKIPPED')) END,
    updated_at = now()
FROM odd o CROSS JOIN (VALUES ('0001-01-01Z'::timestamptz, '9999-12-31Z'::timestamptz)) AS m(first, last)
WHERE w.id = o.id
RETURNING w.id, o.odd
