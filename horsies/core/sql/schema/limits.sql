-- Keeps dates and counters within what arithmetic and Python can handle (D-14), in tables that are older than these
-- constraints. NOT VALID: the rows that exist are not read here, under a lock that stops everybody. One statement at a
-- time, each in a transaction of its own (see schema/limits.py). The models have the same for new tables.

ALTER TABLE horsies_audit ADD CONSTRAINT horsies_audit_limits_check CHECK (
    LEAST(at, ended_at) >= '0001-01-01Z'
    AND GREATEST(at, ended_at) < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_heartbeats ADD CONSTRAINT horsies_heartbeats_limits_check CHECK (
    sent_at >= '0001-01-01Z'
    AND sent_at < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_known_names ADD CONSTRAINT horsies_known_names_limits_check CHECK (
    LEAST(since, seen_at) >= '0001-01-01Z'
    AND GREATEST(since, seen_at) < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_left_tasks ADD CONSTRAINT horsies_left_tasks_limits_check CHECK (
    left_at >= '0001-01-01Z'
    AND left_at < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_load ADD CONSTRAINT horsies_load_limits_check CHECK (
    used_at >= '0001-01-01Z'
    AND used_at < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_rollup ADD CONSTRAINT horsies_rollup_limits_check CHECK (
    start_at >= '0001-01-01Z'
    AND start_at < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_tasks ADD CONSTRAINT horsies_tasks_limits_check CHECK (
    LEAST(sent_at, enqueued_at, claimed_at, started_at, completed_at, failed_at, good_until, next_retry_at,
        claim_expires_at, created_at, updated_at, finalizing_at) >= '0001-01-01Z'
    AND GREATEST(sent_at, enqueued_at, claimed_at, started_at, completed_at, failed_at, good_until, next_retry_at,
        claim_expires_at, created_at, updated_at, finalizing_at) < '10000-01-01Z'
    AND LEAST(retry_count, max_retries, claim_seq, start_failures) >= 0
    AND GREATEST(retry_count, max_retries, claim_seq, start_failures) <= 1000000000
) NOT VALID;

ALTER TABLE horsies_task_defaults ADD CONSTRAINT horsies_task_defaults_limits_check CHECK (
    published_at >= '0001-01-01Z'
    AND published_at < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_task_logs ADD CONSTRAINT horsies_task_logs_limits_check CHECK (
    written_at >= '0001-01-01Z'
    AND written_at < '10000-01-01Z'
    AND LEAST(claim_seq, attempt, first_line, last_line) >= 0
    AND GREATEST(claim_seq, attempt, first_line, last_line) <= 2000000000
) NOT VALID;

ALTER TABLE horsies_task_progress ADD CONSTRAINT horsies_task_progress_limits_check CHECK (
    LEAST(first_at, updated_at) >= '0001-01-01Z'
    AND GREATEST(first_at, updated_at) < '10000-01-01Z'
    AND LEAST(claim_seq, attempt) >= 0
    AND GREATEST(claim_seq, attempt) <= 2000000000
) NOT VALID;

ALTER TABLE horsies_waiting ADD CONSTRAINT horsies_waiting_limits_check CHECK (
    until >= '0001-01-01Z'
    AND until < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_worker_states ADD CONSTRAINT horsies_worker_states_limits_check CHECK (
    LEAST(snapshot_at, worker_started_at) >= '0001-01-01Z'
    AND GREATEST(snapshot_at, worker_started_at) < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_workers ADD CONSTRAINT horsies_workers_limits_check CHECK (
    LEAST(started_at, last_heartbeat_at, drain_requested_at) >= '0001-01-01Z'
    AND GREATEST(started_at, last_heartbeat_at, drain_requested_at) < '10000-01-01Z'
) NOT VALID;

ALTER TABLE horsies_workflows ADD CONSTRAINT horsies_workflows_limits_check CHECK (
    LEAST(good_until, sent_at, created_at, updated_at, started_at, paused_at, completed_at) >= '0001-01-01Z'
    AND GREATEST(good_until, sent_at, created_at, updated_at, started_at, paused_at, completed_at) < '10000-01-01Z'
    AND LEAST(depth, open_nodes) >= 0
    AND GREATEST(depth, open_nodes) <= 1000000000
) NOT VALID;

ALTER TABLE horsies_task_attempts ADD CONSTRAINT horsies_task_attempts_limits_check CHECK (
    LEAST(started_at, finished_at, created_at) >= '0001-01-01Z'
    AND GREATEST(started_at, finished_at, created_at) < '10000-01-01Z'
    AND attempt >= 0
    AND attempt <= 2000000000
) NOT VALID;

ALTER TABLE horsies_workflow_tasks ADD CONSTRAINT horsies_workflow_tasks_limits_check CHECK (
    LEAST(good_until, created_at, updated_at, ready_at, enqueued_at, started_at, completed_at) >= '0001-01-01Z'
    AND GREATEST(good_until, created_at, updated_at, ready_at, enqueued_at, started_at, completed_at) < '10000-01-01Z'
    AND LEAST(task_index, deps_total, deps_completed, deps_failed, deps_skipped) >= 0
    AND GREATEST(task_index, deps_total, deps_completed, deps_failed, deps_skipped) <= 1000000000
) NOT VALID;
