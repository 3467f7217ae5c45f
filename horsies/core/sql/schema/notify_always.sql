-- notify = 'always': every new task and every end of a task sends a notification.
CREATE OR REPLACE FUNCTION horsies_notify_task_changes()
RETURNS trigger AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NEW.status = 'PENDING' THEN
        PERFORM pg_notify('task_new', NEW.id);
        PERFORM pg_notify('task_queue_' || NEW.queue_name, NEW.id);
    ELSIF TG_OP = 'UPDATE' AND OLD.status != NEW.status THEN
        IF NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED') THEN
            PERFORM pg_notify('task_done', NEW.id);
        END IF;
    END IF;
    RETURN NEW;
END;
$$ LANGUAGE plpgsql;

-- Statements that move a row back to PENDING call this. It does what the triggers do for an insert.
CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text, giver text)
RETURNS void AS $$
BEGIN
    PERFORM pg_notify('task_new', task_id);
    PERFORM pg_notify('task_queue_' || queue, task_id);
    PERFORM horsies_wake_workers(queue, 1, giver, task_id);
END;
$$ LANGUAGE plpgsql;
