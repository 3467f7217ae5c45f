-- The functions beside that of the triggers for new and moved tasks (task_changes.sql): how idle workers are woken, what is
-- counted and deleted with tasks, what stays known of workers, the end of workflows, and live monitoring, which notifies only
-- while a monitor has said that it listens. The notify modes replace some of these functions. Names of ours get their schema when
-- they are installed (schema/functions.py): the functions that run with the rights of their owner find nothing but pg_catalog. Where
-- one calls another of ours, arguments have its exact types: somebody's own function of the same name cannot fit better.

-- Wakes idle workers that serve this queue, each on a channel of its own (D-61); no more of them than `most`, the one first
-- whose mark is the newest, and `giver` only if there is no other. A worker whose session has ended is passed over: its
-- liveness lock is free (D-62). So is one that leaves tasks of this name to others (O-31); the `word` is the id of the task, which
-- is read only where such a mark exists. Nothing can come between taking that lock and releasing it, because no statement ends there.
CREATE OR REPLACE FUNCTION horsies_wake_workers(queue text, most bigint, giver text, word text)
RETURNS void AS $$
BEGIN
    PERFORM pg_notify('horsies_wake_' || alive.wake_key, word) FROM (
        SELECT idle.wake_key FROM (
            SELECT wake_key FROM horsies_waiting
            WHERE topic = 'worker' AND until > clock_timestamp() AND queue = ANY(queues)
              AND (leaves IS NULL OR COALESCE((SELECT t.task_name <> ALL(leaves) FROM horsies_tasks t WHERE t.id = word), TRUE))
            ORDER BY holder IS NOT DISTINCT FROM giver, age(xmin) OFFSET 0
        ) idle
        WHERE CASE WHEN pg_try_advisory_lock(idle.wake_key) THEN NOT pg_advisory_unlock(idle.wake_key) ELSE TRUE END
        LIMIT most
    ) alive;
END;
$$ LANGUAGE plpgsql;

-- For the mode when_waiting. The marks for a queue are those of others' programs.
CREATE OR REPLACE FUNCTION horsies_ring_for_queue(queue text, tasks bigint, task_id text, giver text)
RETURNS void AS $$
BEGIN
    IF EXISTS (SELECT FROM horsies_waiting WHERE topic = 'queue:' || queue AND until > clock_timestamp()) THEN
        PERFORM pg_notify('task_new', task_id);
        PERFORM pg_notify('task_queue_' || queue, task_id);
    END IF;
    PERFORM horsies_wake_workers(queue, tasks, giver, task_id);
END;
$$ LANGUAGE plpgsql;

-- Only for a row that is written as claimed, by hand (D-56).
CREATE OR REPLACE FUNCTION horsies_count_new_task()
RETURNS trigger AS $$
BEGIN
    INSERT INTO horsies_load_moves (queue_name, xid, held, running)
    SELECT d.name, pg_current_xact_id()::text::bigint, 1, (NEW.status = 'RUNNING')::int
    FROM unnest(ARRAY[NEW.queue_name, '*']) AS d(name)
    WHERE (SELECT l.used_at > statement_timestamp() - interval '2 days' FROM horsies_load l WHERE l.queue_name = d.name
               ORDER BY l.number DESC LIMIT 1);
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

-- A task that is deleted while it is in flight, by hand, is in flight no more (D-56). After TRUNCATE, which names no rows,
-- nothing is counted until the next claim under a cap. The progress, the logs and the early row of a task go with it; this is
-- not a function of its own, because a call costs more than what it does where there are none.
CREATE OR REPLACE FUNCTION horsies_count_deleted_tasks()
RETURNS trigger AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM horsies_load;
        DELETE FROM horsies_load_moves;
        DELETE FROM horsies_task_progress;
        DELETE FROM horsies_task_logs;
        DELETE FROM horsies_early_tasks;
        RETURN NULL;
    END IF;
    IF (SELECT TRUE FROM horsies_task_progress LIMIT 1) OR (SELECT TRUE FROM horsies_task_logs LIMIT 1) THEN
        DELETE FROM horsies_task_progress WHERE task_id = ANY(ARRAY(SELECT id FROM old_rows));
        DELETE FROM horsies_task_logs WHERE task_id = ANY(ARRAY(SELECT id FROM old_rows));
    END IF;
    IF (SELECT TRUE FROM horsies_early_tasks LIMIT 1) THEN
        DELETE FROM horsies_early_tasks WHERE task_id = ANY(ARRAY(SELECT id FROM old_rows));
    END IF;
    IF (SELECT TRUE FROM horsies_load ORDER BY queue_name DESC, number DESC LIMIT 1) THEN
        INSERT INTO horsies_load_moves (queue_name, xid, held, running)
        SELECT d.name, pg_current_xact_id()::text::bigint, -d.held, -d.running
        FROM (
            SELECT COALESCE(queue_name, '*') AS name, count(*) AS held,
                   count(*) FILTER (WHERE status = 'RUNNING') AS running
            FROM old_rows WHERE claimed GROUP BY GROUPING SETS ((queue_name), ())
        ) d
        WHERE d.held <> 0
          AND (SELECT l.used_at > statement_timestamp() - interval '2 days' FROM horsies_load l WHERE l.queue_name = d.name
               ORDER BY l.number DESC LIMIT 1);
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

-- The attempts of deleted tasks go with them (D-20), and their nodes name them no more (D-50), where the keys do not see to that.
-- With the rights of the owner, as keys do it: a role may delete tasks without a right to these tables. The ids are an array,
-- because it is looked up in the index whatever the size of the tables was when this was planned.
CREATE OR REPLACE FUNCTION horsies_follow_deleted_tasks()
RETURNS trigger AS $$
DECLARE
    ids text[];
BEGIN
    IF TG_OP = 'DELETE' THEN  -- for TRUNCATE see triggers.sql
        ids := ARRAY(SELECT id FROM old_rows);
        UPDATE horsies_workflow_tasks SET task_id = NULL WHERE task_id = ANY(ids);
        DELETE FROM horsies_task_attempts WHERE task_id = ANY(ids);
    END IF;
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

-- Until when a worker is alive by its own heartbeats: until three of them have failed to come. What its row says may be odd.
CREATE OR REPLACE FUNCTION horsies_alive_until(last_heartbeat_at timestamptz, recovery jsonb)
RETURNS timestamptz AS $$
    SELECT GREATEST(LEAST($1, now()), '0001-01-01Z') + 3 * interval '1 ms' * COALESCE(
        jsonb_path_query_first($2, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8, 30000)
$$ LANGUAGE sql STABLE;

-- When the row of a worker goes, its names were known as long as it was alive, at most until now (D-57). The names are shared
-- with other workers, so nobody waits for their row; whoever has it locked is such a worker, and refreshes it.
CREATE OR REPLACE FUNCTION horsies_keep_known_names()
RETURNS trigger AS $$
BEGIN
    UPDATE horsies_known_names k SET seen_at = GREATEST(k.seen_at, l.until)
    FROM (SELECT names_hash, max(LEAST(now(), horsies_alive_until(last_heartbeat_at, recovery))) AS until
          FROM old_rows GROUP BY names_hash) l
    WHERE k.names_hash = l.names_hash AND k.names_hash = ANY(ARRAY(
        SELECT n.names_hash FROM horsies_known_names n JOIN old_rows USING (names_hash) FOR UPDATE OF n SKIP LOCKED));
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;

-- How many tasks of a counted queue, or of all with '*', are in flight in the snapshot of the statement that asks (D-56).
-- It is STABLE for that snapshot. The bounds only pass over moves that were summed up and deleted: while somebody reads the
-- database for hours, these cannot be cleared away. Transaction numbers of another server, from a dump, mean nothing.
CREATE OR REPLACE FUNCTION horsies_in_flight(queue text, OUT held bigint, OUT running bigint) AS $$
DECLARE
    newest horsies_load;
BEGIN
    SELECT l.* INTO newest FROM horsies_load l WHERE l.queue_name = queue ORDER BY l.number DESC LIMIT 1;
    IF NOT FOUND OR newest.used_at < statement_timestamp() - interval '36 hours' THEN
        RETURN;  -- NULL: it is not counted
    END IF;
    IF newest.after_xid > pg_snapshot_xmax(pg_current_snapshot())::text::bigint THEN
        newest.after_xid := 0;
        newest.open_xids := '{}';
    END IF;
    SELECT newest.held + COALESCE(sum(m.held), 0), newest.running + COALESCE(sum(m.running), 0) INTO held, running
    FROM (
        SELECT s.held, s.running FROM horsies_load_moves s WHERE s.queue_name = queue AND s.xid >= newest.after_xid
        UNION ALL
        -- One by one: before PostgreSQL 17 a list and a range together read the whole range, with all that was deleted from it.
        SELECT o.held, o.running FROM unnest(newest.open_xids) AS x(id) CROSS JOIN LATERAL (
            SELECT s.held, s.running FROM horsies_load_moves s WHERE s.queue_name = queue AND s.xid = x.id OFFSET 0
        ) o WHERE x.id < newest.after_xid
    ) m;
END;
$$ LANGUAGE plpgsql STABLE;

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

-- Whether two JSON texts say the same; the order of keys, blanks and empty values do not matter. A text that the server
-- cannot read as JSON equals only itself.
CREATE OR REPLACE FUNCTION horsies_same_json(ours text, theirs text, nothing text, without text)
RETURNS boolean AS $$
BEGIN
    ours := CASE WHEN ours = ''::text OR ours IS NULL THEN nothing ELSE ours END;
    theirs := CASE WHEN theirs = ''::text OR theirs IS NULL THEN nothing ELSE theirs END;
    IF ours = theirs THEN
        RETURN TRUE;
    ELSIF without IS NULL THEN
        RETURN ours::jsonb::text = theirs::jsonb::text;
    END IF;
    RETURN (ours::jsonb - without)::text = (theirs::jsonb - without)::text;
EXCEPTION WHEN OTHERS THEN
    RETURN FALSE;
END;
$$ LANGUAGE plpgsql IMMUTABLE;

-- The rows that stand in the way of these sends, by id (T-54) or by idempotency key (T-57), each with the place of the
-- send it concerns. By id comes first: it is the same send, whatever its key. It runs with the rights of its owner and
-- compares here, so that a role that may send can repeat a send without a right to read what others have sent (O-20).
-- A send that may reuse its key takes it from a task that ended without success, and then finds nothing in its way. Two such
-- sends wait for each other at the row, and the second finds the task that the first has written.
-- What an early task will get is not known yet (D-59c): only its arguments tell it from another send.
CREATE OR REPLACE FUNCTION horsies_find_sent(sends json)
RETURNS TABLE (place int, same_id boolean, task_id text, same_payload boolean, differing text) AS $$
#variable_conflict use_column
DECLARE
    -- Inside this function, current_user is its owner. After SET ROLE, the setting has the role of the caller.
    role text := current_setting('role');
    caller name := CASE WHEN role = 'none' THEN session_user ELSE role::name END;
BEGIN
    IF NOT has_any_column_privilege(
        caller, (SELECT y.typrelid FROM pg_type y WHERE y.oid = pg_typeof(NULL::horsies_tasks)::oid), 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied for table horsies_tasks';
    END IF;
    IF EXISTS (SELECT FROM json_to_recordset(sends) AS w(reuse boolean) WHERE w.reuse) THEN
        UPDATE horsies_tasks t SET idempotency_key = NULL
        FROM (
            SELECT o.id FROM horsies_tasks o
            JOIN json_to_recordset(sends) AS w(id text, task_name text, idempotency_key text, reuse boolean)
              ON o.task_name = w.task_name AND o.idempotency_key = w.idempotency_key AND o.id <> w.id
            WHERE w.reuse AND o.status IN ('FAILED', 'EXPIRED', 'CANCELLED')
            ORDER BY o.id FOR NO KEY UPDATE OF o
        ) freed
        WHERE t.id = freed.id;
    END IF;
    RETURN QUERY
    SELECT f.place, f.same_id, f.id, f.sent_sha IS NOT DISTINCT FROM f.enqueue_sha,
        CASE WHEN NOT f.same_id THEN rtrim(
            CASE WHEN f.sent_queue <> f.queue_name AND NOT f.is_early THEN 'queue,' ELSE '' END
            || CASE WHEN f.sent_priority <> f.priority AND NOT f.is_early THEN 'priority,' ELSE '' END
            || CASE WHEN horsies_same_json(f.sent_args, f.args, '[]'::text, NULL::text)
                     AND horsies_same_json(f.sent_kwargs, f.kwargs, '{}'::text, NULL::text)
               THEN '' ELSE 'arguments,' END
            || CASE WHEN f.is_early OR horsies_same_json(f.sent_options, f.task_options, '{}'::text, 'trace'::text)
               THEN '' ELSE 'options,' END
            || CASE WHEN f.is_early OR horsies_same_json(f.sent_flags, f.flags::text, '{}'::text, NULL::text)
               THEN '' ELSE 'flags,' END,
            ',') END
    FROM (
        SELECT DISTINCT ON (w.place) w.place, w.id = t.id AS same_id, t.id::text AS id, t.enqueue_sha, t.queue_name, t.priority,
            t.args, t.kwargs, t.task_options, t.flags, t.queue_name = '(early)' AS is_early, w.sent_sha, w.sent_queue,
            w.sent_priority, w.sent_args, w.sent_kwargs, w.sent_options, w.sent_flags
        FROM json_to_recordset(sends) AS w(place int, id text, task_name text, idempotency_key text, sent_sha text,
            sent_queue text, sent_priority int, sent_args text, sent_kwargs text, sent_options text, sent_flags text)
        CROSS JOIN LATERAL (
            SELECT * FROM horsies_tasks WHERE id = w.id
            UNION ALL
            SELECT * FROM horsies_tasks WHERE task_name = w.task_name AND idempotency_key = w.idempotency_key
        ) t
        ORDER BY w.place, same_id DESC
    ) f;
END;
$$ LANGUAGE plpgsql;
