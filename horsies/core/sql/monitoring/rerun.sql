-- Sends tasks that ended without success again as new tasks (M-49), each of which names the old one. The old rows do not
-- change. A new row does not have the idempotency key of the old one, or the two would be the same send; it has no trace, because
-- that has ended; and it has no deadline if the old one has passed. `once` gives it a key that follows from the old task, so that
-- two who send the same tasks again send each of them once (M-49a).
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until, max_retries,
    task_options, flags, idempotency_key)
SELECT w.new_id, t.task_name, t.queue_name, t.priority, t.args, t.kwargs, statement_timestamp(), statement_timestamp(),
    CASE WHEN t.good_until > statement_timestamp() THEN t.good_until END, t.max_retries,
    (COALESCE(NULLIF(t.task_options::jsonb, 'null'), '{}') - 'trace' || jsonb_build_object('rerun_of', t.id))::text, t.flags,
    CASE WHEN %(once)s THEN 'rerun of ' || t.id END
FROM unnest(%(ids)s::text[], %(new_ids)s::text[]) AS w(id, new_id)
CROSS JOIN LATERAL (
    SELECT * FROM horsies_tasks
    WHERE id = w.id AND status IN ('FAILED', 'CANCELLED', 'EXPIRED') AND workflow_id IS NULL OFFSET 0
) t
ORDER BY t.id
ON CONFLICT DO NOTHING
RETURNING task_options::jsonb ->> 'rerun_of', id
