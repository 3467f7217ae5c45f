-- One task with all its columns (M-45). A schema before 12 has no `sent_by`: the name then means that of `older`, which is NULL.
SELECT found.* FROM (SELECT NULL::varchar AS sent_by) older CROSS JOIN LATERAL (
SELECT id AS task_id, task_name, queue_name, priority, args, kwargs, status, sent_at, enqueued_at, claimed_at, started_at,
       completed_at, failed_at, ended_at, result, failed_reason, error_code, claimed, claimed_by_worker_id, good_until,
       retry_count, max_retries, next_retry_at, task_options, worker_pid, worker_hostname, worker_process_name,
       claim_expires_at, enqueue_sha, created_at, updated_at, finalizing_at, claim_seq, flags, recovery_enrolled, start_failures,
       workflow_id, idempotency_key, sent_by
FROM horsies_tasks WHERE id = %(task_id)s) found
