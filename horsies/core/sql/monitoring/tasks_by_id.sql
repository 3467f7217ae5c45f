-- These tasks as lines of a list (M-45).
SELECT id AS task_id, task_name, queue_name, priority, status, sent_at, enqueued_at, claimed_at, started_at, ended_at,
       next_retry_at, good_until, retry_count, max_retries, error_code, claimed_by_worker_id AS worker_id, worker_hostname,
       worker_pid, workflow_id
FROM horsies_tasks WHERE id = ANY(%(ids)s::text[])
