-- The same as tasks/insert for a single task, whose columns come one by one: taking apart a list and sorting it would cost
-- the server a fifth more. Casts, because a connection of the caller's may have its own idea of the type of a text.
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until,
    max_retries, task_options, enqueue_sha, flags, idempotency_key, workflow_id)
VALUES (%(id)s, %(task_name)s, %(queue_name)s, %(priority)s, %(args)s, %(kwargs)s,
    COALESCE(%(sent_at)s::timestamptz, statement_timestamp()), statement_timestamp() + make_interval(secs => %(wait)s),
    %(good_until)s::timestamptz, %(max_retries)s, %(task_options)s, %(enqueue_sha)s, COALESCE(%(flags)s::jsonb, '{}'),
    %(idempotency_key)s, %(workflow_id)s)
ON CONFLICT DO NOTHING
RETURNING id
