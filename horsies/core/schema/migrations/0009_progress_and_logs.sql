-- How far running tasks have come (D-22), and what they have logged (D-23). Neither has a key to horsies_tasks: a trigger that
-- exists already deletes their rows with the tasks (horsies_count_deleted_tasks). `install` also lets a send take an
-- idempotency key from a failed task (horsies_find_sent).
CREATE TABLE horsies_task_progress (
    task_id VARCHAR(36) NOT NULL,
    claim_seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    done DOUBLE PRECISION NOT NULL,
    total DOUBLE PRECISION,
    message TEXT,
    first_done DOUBLE PRECISION NOT NULL,
    first_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (task_id),
    CONSTRAINT horsies_task_progress_limits_check CHECK (LEAST(first_at, updated_at) >= '0001-01-01Z'
        AND GREATEST(first_at, updated_at) < '10000-01-01Z' AND LEAST(claim_seq, attempt) >= 0
        AND GREATEST(claim_seq, attempt) <= 2000000000)
);
CREATE TABLE horsies_task_logs (
    task_id VARCHAR(36) NOT NULL,
    claim_seq INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    lines TEXT NOT NULL,
    written_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (task_id, claim_seq, first_line),
    CONSTRAINT horsies_task_logs_limits_check CHECK (written_at >= '0001-01-01Z' AND written_at < '10000-01-01Z'
        AND LEAST(claim_seq, attempt, first_line, last_line) >= 0
        AND GREATEST(claim_seq, attempt, first_line, last_line) <= 2000000000)
);
CREATE INDEX horsies_task_logs_written_at_idx ON horsies_task_logs (written_at);
ALTER TABLE horsies_task_progress SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500);
ALTER TABLE horsies_task_logs SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05);
