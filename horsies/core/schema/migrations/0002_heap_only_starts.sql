-- Indexes no longer mention `status` and `updated_at`, which change with every move, but generated columns that do not:
-- so a start or a lease renewal is a heap-only update. The table is rewritten once, under a lock that stops everybody.
-- The trigger is called only for what may ring; `install` makes it anew.
ALTER TABLE horsies_tasks
    ADD COLUMN is_waiting BOOLEAN GENERATED ALWAYS AS (status = 'PENDING') STORED NOT NULL,
    ADD COLUMN ended_at TIMESTAMP WITH TIME ZONE GENERATED ALWAYS AS (
        CASE WHEN status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
        THEN COALESCE(completed_at, failed_at, updated_at) END) STORED;

DROP INDEX horsies_tasks_pending_idx, horsies_tasks_deadline_idx, horsies_tasks_retry_idx, horsies_tasks_terminal_age_idx;
CREATE INDEX horsies_tasks_pending_idx ON horsies_tasks (queue_name, priority, enqueued_at, id) WHERE is_waiting;
CREATE INDEX horsies_tasks_deadline_idx ON horsies_tasks (good_until) WHERE is_waiting AND good_until IS NOT NULL;
CREATE INDEX horsies_tasks_retry_idx ON horsies_tasks (next_retry_at) WHERE is_waiting AND next_retry_at IS NOT NULL;
CREATE INDEX horsies_tasks_terminal_age_idx ON horsies_tasks (ended_at) WHERE ended_at IS NOT NULL;

DROP TRIGGER IF EXISTS horsies_task_notify_trigger ON horsies_tasks;
