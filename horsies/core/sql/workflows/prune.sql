-- Deletes workflows that ended longer than `age` ago (R-80, R-82), the oldest first: their nodes in batches of their own,
-- and the row of a workflow when it has neither nodes nor child workflows any more, so that no cascade is large (R-84). A
-- child is deleted only if its root may be deleted (R-83). It looks at most at `most` workflows after (`after`, `after_id`), and
-- returns how many nodes and workflows it has deleted, and where to continue: at the same place while there are nodes.
-- Without `deleting` it only returns where to continue.
WITH looked AS (
    SELECT id, at FROM (
        -- Workflows that ended without a time were not ended by us. There are few, and a pass looks for them once, when it begins.
        (SELECT id, '-infinity'::timestamptz AS at FROM horsies_workflows
         WHERE %(after)s::timestamptz = '-infinity' AND %(after_id)s::text = '' AND completed_at IS NULL
           AND status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND updated_at < now() - %(age)s::interval
         LIMIT %(most)s)
        UNION ALL
        (SELECT id, completed_at FROM horsies_workflows
         WHERE completed_at < now() - %(age)s::interval
           AND (completed_at, id) > (%(after)s::timestamptz, %(after_id)s::text)
         ORDER BY completed_at, id LIMIT %(most)s)
    ) w ORDER BY at, id LIMIT %(most)s
), ripe AS (
    SELECT w.id FROM looked l CROSS JOIN LATERAL (
        SELECT id, root_workflow_id FROM horsies_workflows
        WHERE id = l.id AND status IN ('COMPLETED', 'FAILED', 'CANCELLED') FOR UPDATE SKIP LOCKED
    ) w
    -- These are scalar subqueries, here and below, because EXISTS could be planned as a hash of the whole table.
    WHERE %(deleting)s AND COALESCE((
        SELECT r.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
               AND COALESCE(r.completed_at, r.updated_at) < now() - %(age)s::interval
        FROM horsies_workflows r WHERE r.id = w.root_workflow_id AND r.id <> w.id), TRUE)
), nodes AS (
    DELETE FROM horsies_workflow_tasks WHERE ctid = ANY(ARRAY(
        SELECT n.at FROM ripe r CROSS JOIN LATERAL (
            SELECT ctid AS at FROM horsies_workflow_tasks WHERE workflow_id = r.id
            ORDER BY task_index LIMIT %(most)s FOR UPDATE SKIP LOCKED
        ) n LIMIT %(most)s
    )) RETURNING id
), gone AS (
    DELETE FROM horsies_workflows WHERE id = ANY(ARRAY(
        SELECT id FROM ripe r
        WHERE (SELECT n.id FROM horsies_workflow_tasks n WHERE n.workflow_id = r.id LIMIT 1) IS NULL
          AND (SELECT c.id FROM horsies_workflows c WHERE c.parent_workflow_id = r.id LIMIT 1) IS NULL
    )) RETURNING id
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM nodes),
       CASE WHEN EXISTS (SELECT FROM nodes) THEN %(after)s::timestamptz ELSE at END::text,
       CASE WHEN EXISTS (SELECT FROM nodes) THEN %(after_id)s::text ELSE id END
FROM looked ORDER BY at DESC, id DESC LIMIT 1
