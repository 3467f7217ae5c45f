-- Finds workflows past their deadline (R-38), the oldest first, among the next `most` after (`after`, `after_id`). `is_due` says
-- whether there is something to do (F-96): a node has not started, or no node is open. A workflow whose last nodes are still
-- running only needs to wait. The last row that was looked at is always returned, because the next call continues from it.
WITH looked AS (
    SELECT id, good_until FROM horsies_workflows
    WHERE good_until IS NOT NULL AND status IN ('PENDING', 'RUNNING', 'PAUSED') AND good_until <= now()
      AND (good_until, id) > (%(after)s::timestamptz, %(after_id)s::text)
    ORDER BY good_until, id LIMIT %(most)s
), judged AS (
    SELECT l.id, l.good_until, (
        -- This is a scalar subquery, because EXISTS could be planned as a hash of the whole table.
        SELECT n.id FROM horsies_workflow_tasks n
        WHERE n.workflow_id = l.id AND n.status IN ('PENDING', 'READY', 'ENQUEUED') LIMIT 1
    ) IS NOT NULL OR (SELECT w.open_nodes FROM horsies_workflows w WHERE w.id = l.id) = 0 AS is_due
    FROM looked l
)
SELECT j.is_due, j.good_until::text, j.id FROM judged j
WHERE j.is_due OR (j.good_until, j.id) = (SELECT l.good_until, l.id FROM looked l ORDER BY l.good_until DESC, l.id DESC LIMIT 1)
ORDER BY j.good_until, j.id
