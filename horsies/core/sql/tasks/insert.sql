-- New tasks, PENDING (L-04, T-44): due `wait` seconds from now, negative by the age of a call that took its time.
-- A row whose id or idempotency key is taken is left out and not returned. In key order, so that two batches with the
-- same keys wait for each other instead of deadlocking.
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until,
    max_retries, task_options, enqueue_sha, flags, idempotency_key)
SELECT w.id, w.task_name, w.queue_name, w.priority, w.args, w.kwargs, w.sent_at, now() + make_interval(secs => w.wait),
    w.good_until, w.max_retries, w.task_options, w.enqueue_sha, COALESCE(w.flags::jsonb, '{}'), w.idempotency_key
FROM unnest(%(ids)s::text[], %(task_names)s::text[], %(queue_names)s::text[], %(priorities)s::int[], %(args)s::text[],
    %(kwargs)s::text[], %(sent_at)s::timestamptz[], %(waits)s::float8[], %(good_until)s::timestamptz[],
    %(max_retries)s::int[], %(task_options)s::text[], %(shas)s::text[], %(flags)s::text[], %(keys)s::text[])
    AS w(id, task_name, queue_name, priority, args, kwargs, sent_at, wait, good_until, max_retries, task_options,
         enqueue_sha, flags, idempotency_key)
ORDER BY w.task_name, w.idempotency_key, w.id
ON CONFLICT DO NOTHING
RETURNING id
