-- Sends from SQL (X-40): what workers have published about each task (D-59b), the tasks that were sent before anybody had (D-59c), and
-- the role that sent a task. The new column has no default, so the table is not rewritten.
CREATE TABLE IF NOT EXISTS horsies_task_defaults (
    task_name VARCHAR(255) NOT NULL,
    queue_name VARCHAR(100) NOT NULL,
    priority INTEGER NOT NULL,
    max_retries INTEGER DEFAULT 0 NOT NULL,
    task_options TEXT,
    flags TEXT,
    queues JSONB DEFAULT '{}'::jsonb NOT NULL,
    reject_bytes INTEGER,
    published_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (task_name),
    CONSTRAINT horsies_task_defaults_limits_check CHECK (
        published_at >= '0001-01-01Z' AND published_at < '10000-01-01Z')
);
CREATE TABLE IF NOT EXISTS horsies_early_tasks (
    task_id VARCHAR(36) NOT NULL,
    task_name VARCHAR(255) NOT NULL,
    queue_name VARCHAR(100),
    priority INTEGER,
    PRIMARY KEY (task_id)
);
CREATE INDEX IF NOT EXISTS horsies_early_tasks_name_idx ON horsies_early_tasks (task_name, task_id);
ALTER TABLE horsies_tasks ADD COLUMN IF NOT EXISTS sent_by VARCHAR(63);
