-- About how many tasks wait in these queues, by name, and how many of them may be claimed now: from a sample of `pages` pages
-- of the table, always the same ones, so that two looks differ only by what has changed.
SELECT queue_name, task_name, (count(*) / s.part)::bigint,
       (count(*) FILTER (WHERE enqueued_at <= now() AND (next_retry_at IS NULL OR next_retry_at <= now())) / s.part)::bigint
FROM horsies_tasks TABLESAMPLE SYSTEM (LEAST(100, 100.0 * %(pages)s
         / GREATEST(1, pg_relation_size('horsies_tasks'::regclass) / current_setting('block_size')::int))) REPEATABLE (1),
     (SELECT LEAST(1, %(pages)s::float8
          / GREATEST(1, pg_relation_size('horsies_tasks'::regclass) / current_setting('block_size')::int)) AS part) s
WHERE is_waiting AND queue_name = ANY(%(queues)s::text[])
GROUP BY queue_name, task_name, s.part
