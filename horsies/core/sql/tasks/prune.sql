-- Deletes tasks that ended longer than `age` ago (R-80, R-82), the oldest first, and with them their attempts, which count
-- (R-84). Looks at `most` rows at most, from the one after (`after`, `after_id`) on, and answers how many it deleted and
-- where to go on; no answer means that there are no more. Tasks of workflows that are not at their end stay (R-83), and
-- are not looked at again in this pass; so are those that somebody has locked, and those that somebody who purges by hand
-- has not chosen: empty lists choose all. Without `deleting` it only answers where to go on.
WITH looked AS (
    SELECT t.id, t.ended_at, t.workflow_id,
           (t.workflow_id IS NULL OR %(with_workflows)s)
               AND (t.status = ANY(%(statuses)s::text[]) OR cardinality(%(statuses)s::text[]) = 0)
               AND (t.queue_name = ANY(%(queues)s::text[]) OR cardinality(%(queues)s::text[]) = 0)
               AND (t.task_name = ANY(%(task_names)s::text[]) OR cardinality(%(task_names)s::text[]) = 0) AS is_chosen,
           sum(1 + (SELECT count(*) FROM horsies_task_attempts a WHERE a.task_id = t.id))
               OVER (ORDER BY t.ended_at, t.id) AS weight,
           row_number() OVER (ORDER BY t.ended_at, t.id) AS nth
    FROM (
        SELECT id, ended_at, workflow_id, status, queue_name, task_name FROM horsies_tasks
        WHERE ended_at IS NOT NULL AND ended_at < now() - %(age)s::interval
          AND (ended_at, id) > (%(after)s::timestamptz, %(after_id)s::text)
        ORDER BY ended_at, id LIMIT %(most)s
    ) t
), batch AS (
    SELECT id, ended_at, workflow_id, is_chosen, nth FROM looked WHERE weight <= %(most)s OR nth = 1
), nodes AS (
    -- The cascade changes them: locked before their tasks, and never waited for (D-63).
    SELECT n.task_id FROM batch b CROSS JOIN LATERAL (
        SELECT task_id FROM horsies_workflow_tasks WHERE task_id = b.id FOR UPDATE SKIP LOCKED
    ) n WHERE b.workflow_id IS NOT NULL AND b.is_chosen
), locked AS (
    SELECT t.at FROM batch b CROSS JOIN LATERAL (
        SELECT ctid AS at FROM horsies_tasks WHERE id = b.id AND ended_at IS NOT NULL FOR UPDATE SKIP LOCKED
    ) t
    WHERE b.is_chosen AND %(deleting)s AND (b.workflow_id IS NULL OR (
        -- As values: EXISTS could be planned as a hash of the whole table.
        COALESCE((SELECT w.status FROM horsies_workflows w WHERE w.id = b.workflow_id), 'COMPLETED')
            IN ('COMPLETED', 'FAILED', 'CANCELLED')
        AND (b.id IN (SELECT task_id FROM nodes)
             OR (SELECT n.id FROM horsies_workflow_tasks n WHERE n.task_id = b.id) IS NULL)))
), gone AS (
    DELETE FROM horsies_tasks WHERE ctid = ANY(ARRAY(SELECT at FROM locked)) RETURNING id
)
SELECT (SELECT count(*) FROM gone), 0, b.ended_at::text, b.id FROM batch b ORDER BY b.nth DESC LIMIT 1
