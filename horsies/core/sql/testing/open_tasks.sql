-- How many tasks are in flight, how many are due, how many wait for their retry, and how many workflows have something
-- left to do: what a crash test waits for (X-14). What is scheduled for later does not count.
SELECT count(*) FILTER (WHERE status IN ('CLAIMED', 'RUNNING')),
       count(*) FILTER (WHERE is_waiting AND NOT is_held AND enqueued_at <= now() AND (next_retry_at IS NULL OR next_retry_at <= now())),
       count(*) FILTER (WHERE is_waiting AND NOT is_held AND next_retry_at > now()),
       (SELECT count(*) FROM horsies_workflows WHERE status IN ('PENDING', 'RUNNING')),
       COALESCE(extract(epoch FROM min(next_retry_at) FILTER (WHERE is_waiting AND next_retry_at > now()) - now()), 0)::float8
FROM horsies_tasks
WHERE status IN ('PENDING', 'CLAIMED', 'RUNNING')
