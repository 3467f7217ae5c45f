-- notify = 'when_waiting': notify only if there is a waiting mark in horsies_waiting, because every commit that
-- notifies takes one lock for the whole server. clock_timestamp() is used, because now() stands still in a long
-- transaction.
CREATE OR REPLACE FUNCTION horsies_notify_task_changes()
RETURNS trigger AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NEW.status = 'PENDING' THEN
        IF EXISTS (SELECT FROM horsies_waiting
                   WHERE topic = 'queue:' || NEW.queue_name AND until > clock_timestamp()) THEN
            PERFORM pg_notify('task_new', NEW.id);
            PERFORM pg_notify('task_queue_' || NEW.queue_name, NEW.id);
        END IF;
    ELSIF TG_OP = 'UPDATE' AND OLD.status != NEW.status THEN
        IF NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
           AND EXISTS (SELECT FROM horsies_waiting
                       WHERE topic = 'task:' || NEW.id AND until > clock_timestamp()) THEN
            PERFORM pg_notify('task_done', NEW.id);
        END IF;
    END IF;
    RETURN NEW;
END;
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text)
RETURNS void AS $$
BEGIN
    IF EXISTS (SELECT FROM horsies_waiting
               WHERE topic = 'queue:' || queue AND until > clock_timestamp()) THEN
        PERFORM pg_notify('task_new', task_id);
        PERFORM pg_notify('task_queue_' || queue, task_id);
    END IF;
END;
$$ LANGUAGE plpgsql;
