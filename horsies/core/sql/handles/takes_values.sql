-- The first node of a workflow, or of the child workflows that its nodes have now (F-65 bounds the depth), that has not
-- started and takes values from other nodes. The rows are read one by one by their ids: a join could be planned as a walk
-- through the whole table.
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
SELECT n.node_id
FROM family CROSS JOIN LATERAL (
    SELECT node_id FROM horsies_workflow_tasks
    WHERE workflow_id = family.id AND status IN ('PENDING', 'READY') AND args_from <> '{}'::jsonb
    ORDER BY task_index LIMIT 1
) n
ORDER BY family.level, family.id LIMIT 1
