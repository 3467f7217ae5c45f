-- Sends a task that ended without success again as a new task (M-49), which names the old one. The old row does not
-- change. The new row has no idempotency key, or the two would be the same send; it has no trace, because that has
-- ended; and it has no deadline if the old one has passed.
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until, max_retries,
    task_options, flags)
SELECT %(new_id)s::text, t.task_name, t.queue_name, t.priority, t.args, t.kwargs, statement_timestamp(), statement_timestamp(),
    CASE WHEN t.good_until > statement_timestamp() THEN t.good_until END, t.max_retries,
    (COALESCE(NULLIF(t.task_options::jsonb, 'null'), '{}') - 'trace' || jsonb_build_object('rerun_of', t.id))::text, t.flags
FROM horsies_tasks t
WHERE t.id = %(task_id)s AND t.status IN ('FAILED', 'CANCELLED', 'EXPIRED') AND t.workflow_id IS NULL
ON CONFLICT (id) DO NOTHING
RETURNING id
