-- What workers know and what they leave to others (O-31, O-32). The new columns have no default, so the tables are not rewritten.
CREATE TABLE IF NOT EXISTS horsies_known_names (
    names_hash VARCHAR(64) NOT NULL,
    names TEXT[] NOT NULL,
    since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (names_hash),
    CONSTRAINT horsies_known_names_limits_check CHECK (
        LEAST(since, seen_at) >= '0001-01-01Z' AND GREATEST(since, seen_at) < '10000-01-01Z')
);
CREATE TABLE IF NOT EXISTS horsies_left_tasks (
    task_id VARCHAR(36) NOT NULL,
    left_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    reason TEXT,
    PRIMARY KEY (task_id),
    CONSTRAINT horsies_left_tasks_limits_check CHECK (left_at >= '0001-01-01Z' AND left_at < '10000-01-01Z')
);
CREATE INDEX IF NOT EXISTS horsies_left_tasks_left_at_idx ON horsies_left_tasks (left_at);
ALTER TABLE horsies_workers ADD COLUMN IF NOT EXISTS names_hash VARCHAR(64);
ALTER TABLE horsies_waiting ADD COLUMN IF NOT EXISTS leaves TEXT[];
