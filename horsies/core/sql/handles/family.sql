-- A workflow and the child workflows that its nodes have now, and their children (F-65 bounds the depth), parents
-- first. A child that was replaced when its node was tried again (F-94) is not included. The rows are read one by one
-- by their ids: a join could be planned as a walk through the whole table.
WITH RECURSIVE family AS (
    SELECT %(workflow_id)s::text AS id, 0 AS level
    UNION ALL
    SELECT n.sub_workflow_id::text, family.level + 1
    FROM family CROSS JOIN LATERAL (
        SELECT sub_workflow_id FROM horsies_workflow_tasks
        WHERE workflow_id = family.id AND sub_workflow_id IS NOT NULL OFFSET 0
    ) n
    WHERE family.level < %(depth)s
)
SELECT f.id, f.name, f.definition_key, f.status, f.error, f.error_code, f.parent_workflow_id, f.good_until, f.sent_at,
    f.started_at, f.paused_at, f.completed_at,
    CASE WHEN isfinite(f.started_at) AND isfinite(COALESCE(f.completed_at, now()))
         THEN extract(epoch FROM COALESCE(f.completed_at, clock_timestamp()) - f.started_at)::float8 END AS seconds
FROM family CROSS JOIN LATERAL (SELECT * FROM horsies_workflows WHERE id = family.id OFFSET 0) f
ORDER BY family.level, f.id
