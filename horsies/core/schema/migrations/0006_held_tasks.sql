-- Waiting tasks of paused workflows leave the line: in the index of the claims, `is_held` comes before the time, so that a claim
-- does not pass them one by one. The column is added in a moment, the index is built anew. Older code still works, but its
-- claims sort a queue; so its workers should not stay for long where queues are deep.
ALTER TABLE horsies_tasks ADD COLUMN is_held BOOLEAN DEFAULT false NOT NULL;

DROP INDEX horsies_tasks_pending_idx;
CREATE INDEX horsies_tasks_pending_idx ON horsies_tasks (queue_name, priority, is_held, enqueued_at, id) WHERE is_waiting;
CREATE INDEX horsies_tasks_held_idx ON horsies_tasks (workflow_id, id) WHERE is_held AND is_waiting;
