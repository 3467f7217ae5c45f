-- What tasks are sent with unless the sender says otherwise (D-59b). Whoever publishes last wins; a row that would not change is not
-- written, so that a hundred workers that start with the same code write it once. In the order of names, so that two workers wait for
-- each other instead of deadlocking.
INSERT INTO horsies_task_defaults AS d (task_name, queue_name, priority, max_retries, task_options, flags, queues, reject_bytes)
SELECT w.task_name, w.queue_name, w.priority, w.max_retries, w.task_options, w.flags, %(queues)s::jsonb, w.reject_bytes
FROM json_to_recordset(%(rows)s::json) AS w(task_name text, queue_name text, priority int, max_retries int, task_options text,
    flags text, reject_bytes int)
ORDER BY w.task_name COLLATE "C"
ON CONFLICT (task_name) DO UPDATE
SET queue_name = EXCLUDED.queue_name, priority = EXCLUDED.priority, max_retries = EXCLUDED.max_retries,
    task_options = EXCLUDED.task_options, flags = EXCLUDED.flags, queues = EXCLUDED.queues, reject_bytes = EXCLUDED.reject_bytes,
    published_at = now()
WHERE (d.queue_name, d.priority, d.max_retries, d.task_options, d.flags, d.queues, d.reject_bytes) IS DISTINCT FROM
      (EXCLUDED.queue_name, EXCLUDED.priority, EXCLUDED.max_retries, EXCLUDED.task_options, EXCLUDED.flags, EXCLUDED.queues,
       EXCLUDED.reject_bytes)
