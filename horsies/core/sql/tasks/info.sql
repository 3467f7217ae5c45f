-- One task as T-63 describes it; what may be large is read only when asked for.
SELECT id AS task_id, task_name, status, queue_name, priority, retry_count, max_retries, next_retry_at, sent_at,
    enqueued_at, claimed_at, started_at, completed_at, failed_at, worker_hostname, worker_pid, worker_process_name,
    error_code, good_until, flags, claimed_by_worker_id, finalizing_at,
    CASE WHEN %(include_result)s THEN result END AS result,
    CASE WHEN %(include_failed_reason)s THEN failed_reason END AS failed_reason
FROM horsies_tasks
WHERE id = %(task_id)s
