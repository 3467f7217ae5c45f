-- What the triggers of horsies_tasks do, once for each statement that inserts or updates rows: the notifications of the notify
-- mode (D-60), those for monitors and for idle workers (D-61), and the count of tasks in flight (D-56). All of it is in one
-- function: a call costs as much as several rows of a batch, because it changes role and search path, and a call for
-- each row costs more than all else that is done about a notification. If nobody watches, waits or counts, a statement costs
-- one look at small tables. clock_timestamp() is used, because now() stands still in a long transaction.
CREATE OR REPLACE FUNCTION horsies_notify_task_changes()
RETURNS trigger AS $$
DECLARE
    is_watched boolean;
    is_counted boolean;
    --{ always
    is_worker_idle boolean;
    had_ended boolean;
    --}
    --{ when_waiting
    ids text[];
    ends text[];
    --}
BEGIN
    IF TG_OP = 'INSERT' THEN
        --{ always
        PERFORM pg_notify('task_new', id), pg_notify('task_queue_' || queue_name, id) FROM new_rows WHERE status = 'PENDING';
        SELECT EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()),
               EXISTS (SELECT FROM horsies_waiting WHERE topic = 'worker' AND until > clock_timestamp())
        INTO is_watched, is_worker_idle;
        --}
        --{ !always
        is_watched := EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp());
        --}
        IF is_watched THEN
            PERFORM pg_notify('horsies_task_status', id) FROM new_rows;
        END IF;
        --{ always
        IF is_worker_idle THEN
            PERFORM horsies_wake_workers(n.queue_name::text, count(*), NULL::text, min(n.id::text))
            FROM new_rows n WHERE n.status = 'PENDING' GROUP BY n.queue_name;
        END IF;
        --}
        --{ when_waiting
        PERFORM horsies_ring_for_queue(n.queue_name::text, count(*), min(n.id::text), NULL::text)
        FROM new_rows n WHERE n.status = 'PENDING' GROUP BY n.queue_name;
        --}
        RETURN NULL;
    END IF;

    -- A status has changed if the row had another one before: EXCEPT, because a join of the two tables could be planned for a
    -- few rows, and would compare each with each when there are thousands. The newest row of horsies_load is looked for,
    -- because older ones may be dead: an index that is read from the back finds it at once.
    --{ always
    SELECT EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()),
           (SELECT TRUE FROM horsies_load ORDER BY queue_name DESC, number DESC LIMIT 1),
           CASE WHEN EXISTS (SELECT FROM new_rows WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED'))
           THEN EXISTS (SELECT FROM old_rows WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')) END
    INTO is_watched, is_counted, had_ended;
    IF NOT had_ended THEN  -- as usual: all that are at their end now have come to it
        PERFORM pg_notify('task_done', id) FROM new_rows WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED');
    ELSIF had_ended THEN
        PERFORM pg_notify('task_done', id) FROM (
            SELECT id, status FROM new_rows WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
            EXCEPT SELECT id, status FROM old_rows
        ) ended;
    END IF;
    --}
    --{ !always
    SELECT EXISTS (SELECT FROM horsies_waiting WHERE topic = 'monitor' AND until > clock_timestamp()),
           (SELECT TRUE FROM horsies_load ORDER BY queue_name DESC, number DESC LIMIT 1)
    INTO is_watched, is_counted;
    --}
    --{ when_waiting
    SELECT array_agg(n.id::text), array_agg(n.status::text) INTO ids, ends FROM new_rows n
    WHERE n.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
      AND EXISTS (SELECT FROM horsies_waiting w WHERE w.topic = 'task:' || n.id AND w.until > clock_timestamp());
    IF ids IS NOT NULL THEN
        PERFORM pg_notify('task_done', id) FROM (
            SELECT * FROM unnest(ids, ends) AS awaited(id, status) EXCEPT SELECT id, status FROM old_rows
        ) ended;
    END IF;
    --}
    IF is_watched THEN
        PERFORM pg_notify('horsies_task_status', id) FROM (
            SELECT id, status FROM new_rows EXCEPT SELECT id, status FROM old_rows
        ) changed;
    END IF;

    -- What changes about the tasks in flight of counted queues. Nothing is counted unless a worker has a cap. A count that nobody
    -- has used for two days is not kept up: older code has come back, which would never sum it up. It is not believed long
    -- before that.
    IF is_counted THEN
        INSERT INTO horsies_load_moves (queue_name, xid, held, running)
        SELECT d.name, pg_current_xact_id()::text::bigint, d.held, d.running
        FROM (
            SELECT COALESCE(queue_name, '*') AS name, sum(held) AS held, sum(running) AS running
            FROM (
                SELECT queue_name, claimed::int AS held, (claimed AND status = 'RUNNING')::int AS running FROM new_rows
                UNION ALL
                SELECT queue_name, -claimed::int, -(claimed AND status = 'RUNNING')::int FROM old_rows
            ) r
            GROUP BY GROUPING SETS ((queue_name), ())
        ) d
        WHERE (d.held <> 0 OR d.running <> 0)
          AND (SELECT l.used_at > statement_timestamp() - interval '2 days' FROM horsies_load l WHERE l.queue_name = d.name
               ORDER BY l.number DESC LIMIT 1);
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;
