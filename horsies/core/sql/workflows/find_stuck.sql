-- Finds nodes in flight that nothing will move any more (R-30, R-34, R-35), among the next `most` after (`after_id`,
-- `after_index`), and says why. It takes no locks: advancing checks again under the lock of the workflow. The last row that
-- was looked at is always returned, because the next call continues from it; no row means that there are no more nodes.
--   ended     its task has ended at least `grace` ago
--   stranded  its task waits, but its workflow has ended, so nothing would ever start the task
--   child     its child workflow has ended at least `grace` ago
--   lost      the row of its task, or of its child workflow, does not exist any more
--   ready     it could have been enqueued for at least `grace`: one for each workflow and for each map, because a step takes all
--             that are READY. An element may wait for others of its map (F-95).
-- What a worker has in its line is left to it for as long as it makes progress (R-31): `marks` are those of two graces at most. A
-- task that ended without a claim is in the line of whoever ended it.
WITH marks AS MATERIALIZED (
    SELECT worker_id, jsonb_path_query_first(metadata, '$.advancing.since ? (@ >= 0 && @ <= 1e11)')::float8 AS since,
           metadata #> '{advancing,flows}' AS flows
    FROM horsies_workers
    WHERE jsonb_path_query_first(metadata, '$.advancing.at ? (@ >= 0 && @ <= 1e11)')::float8
          > extract(epoch FROM now() - 2 * %(grace)s::interval)
), looked AS (
    SELECT n.*, row_number() OVER (PARTITION BY workflow_id, map_index, status ORDER BY ready_at, task_index) AS nth FROM (
        SELECT workflow_id, task_index, node_type, status, task_id, sub_workflow_id, map_index,
               COALESCE(ready_at, updated_at) AS ready_at
        FROM horsies_workflow_tasks
        WHERE status IN ('READY', 'ENQUEUED', 'RUNNING')
          AND (workflow_id, task_index) > (%(after_id)s::text, %(after_index)s::int)
        ORDER BY workflow_id, task_index LIMIT %(most)s
    ) n
), judged AS (
    SELECT l.*, CASE
        WHEN l.status = 'READY' THEN
            -- The one that has waited longest is enough: for a wide workflow, and for a map, everything that is READY is enqueued.
            CASE WHEN l.nth = 1 AND l.ready_at <= now() - %(grace)s::interval
                      AND (SELECT w.status FROM horsies_workflows w WHERE w.id = l.workflow_id) = 'RUNNING'
                      AND (SELECT m.worker_id FROM marks m WHERE m.flows ? l.workflow_id LIMIT 1) IS NULL
                      -- Without `max_parallel` there is always a free place. But if an element has just ended, which updates the row of
                      -- the map, another process is about to enqueue the next one.
                      AND (l.node_type <> 'ELEMENT' OR COALESCE((
                          SELECT m.updated_at <= now() - %(grace)s::interval AND CASE WHEN m.places IS NOT NULL THEN (SELECT count(*) FROM (
                              SELECT FROM horsies_workflow_tasks e
                              WHERE e.workflow_id = l.workflow_id AND e.status IN ('ENQUEUED', 'RUNNING')
                                AND e.map_index = l.map_index LIMIT m.places) e) < m.places ELSE TRUE END
                          FROM (SELECT jsonb_path_query_first(map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int AS places, updated_at FROM horsies_workflow_tasks
                                WHERE workflow_id = l.workflow_id AND task_index = l.map_index OFFSET 0) m), TRUE))
                 THEN 'ready' END
        WHEN l.node_type IN ('TASK', 'ELEMENT') THEN COALESCE((
            -- These are scalar subqueries, here and below, because a join could become a scan of the whole table.
            SELECT CASE WHEN t.ended_at <= now() - %(grace)s::interval THEN
                            CASE WHEN (SELECT m.worker_id FROM marks m
                                       WHERE m.worker_id = COALESCE(t.claimed_by_worker_id, m.worker_id)
                                         AND extract(epoch FROM t.ended_at) >= m.since LIMIT 1) IS NULL THEN 'ended' ELSE '' END
                        WHEN t.status = 'PENDING' AND (
                            SELECT w.status FROM horsies_workflows w WHERE w.id = l.workflow_id
                        ) IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN 'stranded' ELSE '' END
            FROM horsies_tasks t WHERE t.id = l.task_id), 'lost')
        WHEN l.node_type = 'SUBWORKFLOW' THEN COALESCE((
            SELECT CASE WHEN c.status IN ('COMPLETED', 'FAILED', 'CANCELLED')
                             AND COALESCE(c.completed_at, c.updated_at) <= now() - %(grace)s::interval
                             AND (SELECT m.worker_id FROM marks m WHERE m.flows ? c.id LIMIT 1) IS NULL
                        THEN 'child' ELSE '' END
            FROM horsies_workflows c WHERE c.id = l.sub_workflow_id), 'lost')
        END AS what
    FROM looked l
), last AS (
    SELECT workflow_id, task_index FROM looked ORDER BY workflow_id DESC, task_index DESC LIMIT 1
)
SELECT j.what, j.workflow_id, j.task_index, CASE j.node_type WHEN 'SUBWORKFLOW' THEN j.sub_workflow_id ELSE j.task_id END
FROM judged j WHERE j.what <> '' OR (j.workflow_id, j.task_index) = (SELECT l.workflow_id, l.task_index FROM last l)
ORDER BY j.workflow_id, j.task_index
