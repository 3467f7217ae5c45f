-- New tasks, PENDING (L-04, T-44): due `wait` seconds from this statement, negative by the age of a call that took its
-- time. Not from now(): the transaction may be the caller's, and have begun long ago. A row whose id or idempotency key is
-- taken is left out and not returned. In key order, so that two batches with the same keys wait for each other instead of
-- deadlocking. They come as one JSON list: for one task as for a thousand that costs both sides less than arrays.
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until,
    max_retries, task_options, enqueue_sha, flags, idempotency_key, workflow_id)
SELECT w.id, w.task_name, w.queue_name, w.priority, w.args, w.kwargs, COALESCE(w.sent_at, statement_timestamp()),
    statement_timestamp() + make_interval(secs => w.wait), w.good_until, w.max_retries, w.task_options, w.enqueue_sha,
    COALESCE(w.flags::jsonb, '{}'), w.idempotency_key, w.workflow_id
FROM json_to_recordset(%(rows)s::json) AS w(id text, task_name text, queue_name text, priority int, args text, kwargs text,
    sent_at timestamptz, wait float8, good_until timestamptz, max_retries int, task_options text, enqueue_sha text,
    flags text, idempotency_key text, workflow_id text)
ORDER BY w.task_name COLLATE "C", w.idempotency_key COLLATE "C", w.id COLLATE "C"
ON CONFLICT DO NOTHING
RETURNING id
