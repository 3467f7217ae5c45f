-- notify = 'always': every new task and every end of a task sends a notification (task_changes.sql). Statements that move a row
-- back to PENDING call this function. It does what the triggers do for an insert.
CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text, giver text)
RETURNS void AS $$
BEGIN
    PERFORM pg_notify('task_new', task_id);
    PERFORM pg_notify('task_queue_' || queue, task_id);
    PERFORM horsies_wake_workers(queue, 1::bigint, giver, task_id);
END;
$$ LANGUAGE plpgsql;
