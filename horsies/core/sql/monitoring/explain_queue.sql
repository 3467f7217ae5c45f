-- What stands before a waiting task: the tasks in flight, in its queue and in all queues (the longest running first),
-- and the number of due tasks before it in its queue. Only the first `look` tasks of the queue, and ten times
-- as many tasks in flight, are counted.
SELECT f.running, f.held, f.in_all, f.here, f.anywhere, p.due, p.looked >= %(look)s
FROM (
    SELECT count(*) FILTER (WHERE queue_name = %(queue)s AND status = 'RUNNING') AS running,
           count(*) FILTER (WHERE queue_name = %(queue)s) AS held, count(*) AS in_all,
           COALESCE((array_agg(id ORDER BY started_at, id) FILTER (WHERE queue_name = %(queue)s))[1:%(most)s], '{}')::text[]
               AS here,
           COALESCE((array_agg(id ORDER BY started_at, id))[1:%(most)s], '{}')::text[] AS anywhere
    FROM (SELECT id, queue_name, status, started_at FROM horsies_tasks WHERE claimed
          ORDER BY claimed_by_worker_id LIMIT 10 * %(look)s) held
) f CROSS JOIN (
    SELECT count(*) FILTER (WHERE enqueued_at <= now()) AS due, count(*) AS looked FROM (
        SELECT enqueued_at FROM horsies_tasks
        WHERE is_waiting AND NOT is_held AND queue_name = %(queue)s
          AND (priority, enqueued_at, id) < (%(priority)s::int, %(enqueued_at)s::timestamptz, %(task_id)s::text)
        ORDER BY priority, enqueued_at, id LIMIT %(look)s
    ) front
) p
