-- Sends tasks that ended without success again as new tasks (M-49), each of which names the old one. The old rows do not
-- change. A new row does not have the idempotency key of the old one, or the two would be the same send; it has no trace, because
-- that has ended; and it has no deadline if the old one has passed. `once` gives it a key that follows from the old task, so that
-- two who send the same tasks again send each of them once (M-49a). A task that ended before it had a queue (D-59c) gets what is
-- known now, as tasks/adopt.sql does it; if nobody has published its name yet, the new one waits for that like the old one.
WITH sent AS (
    INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until, max_retries,
        task_options, flags, idempotency_key)
    SELECT w.new_id, t.task_name, CASE WHEN d.task_name IS NULL THEN t.queue_name ELSE COALESCE(e.queue_name, d.queue_name) END,
        CASE WHEN d.task_name IS NULL THEN t.priority
             ELSE COALESCE(e.priority, (d.queues ->> e.queue_name)::int, CASE WHEN e.queue_name IS NULL THEN d.priority END, 100) END,
        t.args, t.kwargs,
        statement_timestamp(), statement_timestamp(), CASE WHEN t.good_until > statement_timestamp() THEN t.good_until END,
        COALESCE(d.max_retries, t.max_retries),
        (COALESCE(NULLIF(COALESCE(d.task_options, t.task_options)::jsonb, 'null'), '{}') - 'trace'
            || jsonb_build_object('rerun_of', t.id))::text,
        COALESCE(d.flags::jsonb, t.flags), CASE WHEN %(once)s THEN 'rerun of ' || t.id END
    FROM unnest(%(ids)s::text[], %(new_ids)s::text[]) AS w(id, new_id)
    CROSS JOIN LATERAL (
        SELECT * FROM horsies_tasks
        WHERE id = w.id AND status IN ('FAILED', 'CANCELLED', 'EXPIRED') AND workflow_id IS NULL OFFSET 0
    ) t
    LEFT JOIN horsies_task_defaults d ON t.queue_name = '(early)' AND d.task_name = t.task_name
    LEFT JOIN horsies_early_tasks e ON t.queue_name = '(early)' AND e.task_id = t.id
    ORDER BY t.id
    ON CONFLICT DO NOTHING
    RETURNING task_options::jsonb ->> 'rerun_of' AS old_id, id, task_name, queue_name
), noted AS (
    INSERT INTO horsies_early_tasks (task_id, task_name, queue_name, priority)
    SELECT s.id, s.task_name, e.queue_name, e.priority
    FROM sent s LEFT JOIN horsies_early_tasks e ON e.task_id = s.old_id WHERE s.queue_name = '(early)'
)
SELECT old_id, id FROM sent
