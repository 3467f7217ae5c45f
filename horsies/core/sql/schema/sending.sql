-- The door for other languages (X-40): horsies_send and horsies_result. Both run with the rights of their owner, so that a role needs
-- only the right to call them, and find nothing but pg_catalog (schema/functions.py). The columns that horsies_send writes are those
-- of tasks/insert.sql, and `sent_by`. Only arguments of functions of ours have exact types: somebody's own function beside one cannot
-- fit better then.

-- Sends a task and returns its id. What is not given comes from what a worker has published about the name (D-59b). If nobody has, the
-- task waits in the queue '(early)', which no worker serves, until somebody does (D-59c). The id is a UUID of version 7, as Python
-- makes it: milliseconds, their fraction, and 62 random bits. An idempotency key that is taken gives the id of its task, if this is the
-- same send (T-57).
CREATE OR REPLACE FUNCTION horsies_send(task_name text, arguments jsonb DEFAULT '{}'::jsonb, queue_name text DEFAULT NULL,
    priority integer DEFAULT NULL, delay interval DEFAULT NULL, good_until timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL)
RETURNS text AS $$
#variable_conflict use_column
DECLARE
    -- The collation of a caller (that of his column, or one in which all texts are equal) must decide nothing here: neither what is
    -- compared, nor whether an index can be used.
    name text COLLATE "default" := horsies_send.task_name;
    key text COLLATE "default" := horsies_send.idempotency_key;
    queue text COLLATE "default" := horsies_send.queue_name;
    importance integer := horsies_send.priority;
    deadline timestamptz := horsies_send.good_until;
    -- Inside this function, current_user is its owner. After SET ROLE, the setting has the role of the caller.
    role text COLLATE "default" := current_setting('role');
    caller text COLLATE "default" := CASE WHEN role = 'none' THEN session_user::text ELSE role END;
    -- Not now(): the transaction may have begun long ago, and one statement may send for minutes.
    sent timestamptz := clock_timestamp();
    due timestamptz := sent;
    micros bigint := (extract(epoch FROM sent)::float8 * 1000000)::bigint;
    millis text COLLATE "default" := lpad(to_hex(micros / 1000), 12, '0');
    id text COLLATE "default" := substr(millis, 1, 8) || '-' || substr(millis, 9, 4) || '-7'
        || lpad(to_hex((micros % 1000) * 4096 / 1000), 3, '0')
        || '-' || substr(gen_random_uuid()::text, 20);
    known horsies_task_defaults;
    is_early boolean;
    is_list boolean;
    refusal text[];  -- a message and a hint
    args text COLLATE "default";
    kwargs text COLLATE "default";
    wait numeric;  -- as text, this does not depend on extra_float_digits
    seconds text COLLATE "default";
    stored record;
    differing text COLLATE "default";
BEGIN
    SELECT d.* INTO known FROM horsies_task_defaults d WHERE d.task_name = name;
    is_early := NOT FOUND;
    refusal := CASE
        WHEN name IS NULL OR char_length(name) NOT BETWEEN 1 AND 255 OR name ~ E'[\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]' THEN ARRAY[
            'task_name must have 1 to 255 printable characters', 'horsies_send(''mail.send'', ''{"to": "a@b"}''::jsonb)']
        WHEN arguments IS NULL OR jsonb_typeof(arguments) NOT IN ('object', 'array') THEN ARRAY[
            format('the arguments of task %L must be a JSON object or array, not %s', name, COALESCE(jsonb_typeof(arguments), 'NULL')),
            'an object has the arguments by name, an array has them by position; {} means that there are none']
        WHEN importance NOT BETWEEN 1 AND 100 THEN ARRAY[
            format('the priority of task %L must be from 1 (served first) to 100, not %s', name, importance),
            'leave it out for that of the task']
        -- First as it is written, for it may be infinite; then by the calendar, in which months have other lengths.
        WHEN delay < '0' OR delay > '3650 days' OR sent + delay < sent OR sent + delay > sent + interval '3650 days' THEN ARRAY[
            format('the delay of task %L must be from 0 to 3650 days, not %s', name, delay),
            'leave it out to run the task as soon as possible']
        WHEN NOT isfinite(deadline) OR deadline >= '10000-01-01Z' THEN ARRAY[
            format('good_until of task %L must be a time before the year 10000, not %s', name, deadline),
            'leave it out if the task has no deadline']
        WHEN char_length(key) NOT BETWEEN 1 AND 255 THEN ARRAY[
            format('the idempotency_key of task %L must have 1 to 255 characters, not %s', name, char_length(key)),
            'leave it out if each call is a send of its own']
        WHEN queue !~ '^[A-Za-z0-9_.-]{1,52}$' THEN ARRAY[
            format('there is no queue %L: a name has 1 to 52 letters, digits, "_", "." and "-"', left(queue, 100)),
            'leave it out for the queue of the task']
        WHEN deadline <= sent AND NOT EXISTS (
                SELECT FROM horsies_tasks t WHERE t.task_name = name AND t.idempotency_key = key) THEN ARRAY[
            format('good_until of task %L has passed: %s', name, deadline), 'a task is not started after its good_until']
        WHEN NOT known.queues ? queue THEN ARRAY[
            format('there is no queue %L for task %L', queue, name),
            format('its app has the queues %s', (SELECT string_agg(quote_literal(q.n), ', ' ORDER BY q.n)
                                                 FROM jsonb_object_keys(known.queues) AS q(n)))]
    END;
    IF refusal IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', DETAIL = 'VALIDATION_FAILED', MESSAGE = refusal[1], HINT = refusal[2];
    END IF;

    is_list := jsonb_typeof(arguments) = 'array';
    IF arguments NOT IN ('{}'::jsonb, '[]'::jsonb) THEN
        args := CASE WHEN is_list THEN arguments::text END;
        kwargs := CASE WHEN NOT is_list THEN arguments::text END;
    END IF;
    IF known.reject_bytes IS NOT NULL AND octet_length(COALESCE(args, kwargs)) > known.reject_bytes THEN
        RAISE EXCEPTION USING ERRCODE = '54000', DETAIL = 'PAYLOAD_TOO_LARGE',
            MESSAGE = format('the arguments of task %L have %s bytes, more than the %s that PayloadPolicy.reject_bytes allows',
                             name, octet_length(COALESCE(args, kwargs)), known.reject_bytes),
            HINT = 'store the data elsewhere and send a reference to it';
    END IF;
    IF delay IS NOT NULL THEN
        due := sent + delay;
        wait := trim_scale(extract(epoch FROM due - sent)::numeric);
        -- As Python writes it.
        seconds := CASE WHEN wait > 0 AND wait < 0.00001 THEN trim_scale(wait * 1000000) || 'e-6' ELSE wait::text END;
    END IF;
    known.queue_name := CASE WHEN is_early THEN '(early)' ELSE COALESCE(queue, known.queue_name) END;
    known.priority := COALESCE(importance, (known.queues ->> queue)::integer, known.priority, 100);

    FOR attempt IN 1 .. 3 LOOP
        INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until,
            max_retries, task_options, enqueue_sha, flags, idempotency_key, workflow_id, sent_by)
        VALUES (id, name, known.queue_name, known.priority, args, kwargs, sent, due, deadline,
            COALESCE(known.max_retries, 0), known.task_options,
            -- The fingerprint of Python's `enqueue_sha`: compact JSON, the names in alphabetical order.
            encode(sha256(convert_to(
                '{"args_json":' || COALESCE(to_json(args)::text, 'null')
                || ',"enqueue_delay_seconds":' || COALESCE(seconds, 'null')
                || ',"flags_json":' || COALESCE(to_json(known.flags)::text, 'null')
                || ',"good_until":' || COALESCE(to_json(to_char(deadline AT TIME ZONE 'UTC',
                       'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))::text, 'null')
                || ',"idempotency_key":' || COALESCE(to_json(key)::text, 'null')
                || ',"kwargs_json":' || COALESCE(to_json(kwargs)::text, 'null')
                || ',"priority":' || known.priority
                || ',"queue_name":' || to_json(known.queue_name)::text
                || ',"sent_at":' || to_json(to_char(sent AT TIME ZONE 'UTC',
                       'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))::text
                || ',"task_name":' || to_json(name)::text
                || ',"task_options":' || COALESCE(to_json(known.task_options)::text, 'null') || '}',
                'UTF8')), 'hex'),
            COALESCE(known.flags::jsonb, '{}'::jsonb), key, NULL, caller)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            IF is_early THEN
                INSERT INTO horsies_early_tasks (task_id, task_name, queue_name, priority) VALUES (id, name, queue, importance);
            END IF;
            RETURN id;
        END IF;
        SELECT t.id, t.queue_name, t.priority, t.args, t.kwargs
        INTO stored FROM horsies_tasks t WHERE t.task_name = name AND t.idempotency_key = key;
        IF FOUND THEN
            -- Only what this caller has said can tell it from another send: queue, priority, options and flags that were published may
            -- have changed since, and a deployment must not fail the transaction of somebody who repeats his send. What an early task
            -- will get is not known yet.
            is_early := is_early OR stored.queue_name = '(early)';
            differing := concat_ws(', ',
                CASE WHEN NOT is_early AND stored.queue_name <> queue THEN 'queue' END,
                CASE WHEN NOT is_early AND stored.priority <> importance THEN 'priority' END,
                CASE WHEN NOT (horsies_same_json(args, stored.args, '[]'::text, NULL::text)
                               AND horsies_same_json(kwargs, stored.kwargs, '{}'::text, NULL::text)) THEN 'arguments' END);
            IF differing = '' THEN
                RETURN stored.id;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'TQ001', DETAIL = 'PAYLOAD_MISMATCH',
                MESSAGE = format('idempotency key %L of task %L belongs to task %s, sent with other %s', key, name, stored.id,
                                 differing),
                HINT = 'one key stands for one send; use another key for another';
        END IF;
    END LOOP;
    RAISE serialization_failure USING
        MESSAGE = 'the row with the idempotency key appeared and disappeared during the send; send again';
END;
$$ LANGUAGE plpgsql;

-- What has become of a task: one row, or none if there is no such task, or if the caller may not know. A role may ask for what it has
-- sent itself with horsies_send, or a role that it is a member of; and for everything if it has the right to read results in the table.
-- The ids of all tasks are on channels to which every role may listen, so an id proves nothing.
CREATE OR REPLACE FUNCTION horsies_result(id text)
RETURNS TABLE (task_id text, task_name text, status text, is_terminal boolean, value json, error_code text, error_message text,
    attempts integer, ended_at timestamptz) AS $$
#variable_conflict use_column
DECLARE
    -- Not in a collation of the caller: in that all texts might be equal, ids and roles among them.
    wanted text COLLATE "default" := horsies_result.id;
    role text COLLATE "default" := current_setting('role');
    caller name COLLATE "default" := CASE WHEN role = 'none' THEN session_user ELSE role::name END;
    it record;
BEGIN
    SELECT t.id, t.task_name, t.status, t.result, t.error_code, t.failed_reason, t.retry_count, t.started_at, t.ended_at
    INTO it FROM horsies_tasks t
    WHERE t.id = wanted AND (
        t.sent_by = caller::text
        OR has_column_privilege(caller, t.tableoid, 'result', 'SELECT')
        OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = t.sent_by AND pg_has_role(caller, r.oid, 'MEMBER')));
    IF NOT FOUND THEN
        RETURN;
    END IF;
    task_id := it.id;
    task_name := it.task_name;
    status := it.status;
    is_terminal := it.ended_at IS NOT NULL;
    attempts := it.retry_count + (it.started_at IS NOT NULL)::integer;
    ended_at := it.ended_at;
    error_code := CASE WHEN is_terminal AND status <> 'COMPLETED' THEN it.error_code END;
    BEGIN
        IF status = 'COMPLETED' THEN
            value := it.result::json -> 'ok';
        ELSIF is_terminal THEN
            error_message := COALESCE(it.result::json -> 'err' ->> 'message', it.failed_reason);
        END IF;
    EXCEPTION WHEN data_exception THEN  -- a text with the character NUL, which the server reads nowhere
        error_message := 'the server cannot read this result: it is in horsies_tasks.result';
    END;
    RETURN NEXT;
END;
$$ LANGUAGE plpgsql STABLE;
