-- The channels that do not depend on the notify mode: the end of workflows, and live monitoring, which notifies only
-- while a monitor has said that it listens. They are separate from the documented task trigger, whose behaviour is
-- exact.

-- This runs once per statement, not per row. If no monitor listens, a batch costs one look at a tiny table.
CREATE OR REPLACE FUNCTION horsies_monitor_new_tasks()
RETURNS trigger AS $$
BEGIN
    IF EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()) THEN
        PERFORM pg_notify('horsies_task_status', id) FROM new_rows;
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION horsies_monitor_moved_tasks()
RETURNS trigger AS $$
BEGIN
    IF EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()) THEN
        PERFORM pg_notify('horsies_task_status', n.id)
        FROM new_rows n JOIN old_rows o USING (id) WHERE n.status <> o.status;
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

-- PAUSED is not an end, but those who wait for the workflow are notified of it too.
CREATE OR REPLACE FUNCTION horsies_notify_workflow_changes()
RETURNS trigger AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'PAUSED') THEN
        PERFORM pg_notify('workflow_done', NEW.id);
    END IF;
    IF EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()) THEN
        PERFORM pg_notify('horsies_workflow_status', NEW.id);
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION horsies_monitor_worker_states()
RETURNS trigger AS $$
BEGIN
    IF EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()) THEN
        PERFORM pg_notify('horsies_worker_state', NEW.worker_id);
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;
