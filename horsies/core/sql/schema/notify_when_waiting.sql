-- notify = 'when_waiting': notify only if there is a waiting mark in horsies_waiting, because every commit that
-- notifies takes one lock for the whole server, and signals every session that listens. One notification for each
-- statement and queue, by the triggers that run once per statement. clock_timestamp() is used, because now() stands still
-- in a long transaction.
CREATE OR REPLACE FUNCTION horsies_notify_task_changes()
RETURNS trigger AS $$
BEGIN
    RETURN NEW;
END;
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION horsies_monitor_new_tasks()
RETURNS trigger AS $$
BEGIN
    IF EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()) THEN
        PERFORM pg_notify('horsies_task_status', id) FROM new_rows;
    END IF;
    PERFORM horsies_ring_for_queue(n.queue_name, count(*), min(n.id), NULL)
    FROM new_rows n WHERE n.status = 'PENDING' GROUP BY n.queue_name;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text, giver text)
RETURNS void AS $$
BEGIN
    PERFORM horsies_ring_for_queue(queue, 1, task_id, giver);
END;
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION horsies_monitor_moved_tasks()
RETURNS trigger AS $$
DECLARE
    awaited text[];
BEGIN
    IF EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()) THEN
        PERFORM pg_notify('horsies_task_status', n.id)
        FROM new_rows n JOIN old_rows o USING (id) WHERE n.status <> o.status;
    END IF;
    awaited := ARRAY(
        SELECT n.id FROM new_rows n
        WHERE n.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
          AND EXISTS (SELECT FROM horsies_waiting w WHERE w.topic = 'task:' || n.id AND w.until > clock_timestamp()));
    IF awaited <> '{}' THEN
        PERFORM pg_notify('task_done', n.id)
        FROM unnest(awaited) AS a(id) JOIN new_rows n USING (id) JOIN old_rows o USING (id) WHERE n.status <> o.status;
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;
