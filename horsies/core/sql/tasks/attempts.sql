-- The attempts of one task, newest first (T-63).
SELECT id, task_id, attempt, outcome, will_retry, started_at, finished_at, error_code, error_message, failed_reason,
    worker_id, worker_hostname, worker_pid, worker_process_name, created_at
FROM horsies_task_attempts
WHERE task_id = %(task_id)s
ORDER BY attempt DESC
