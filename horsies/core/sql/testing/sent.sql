-- Every task that was sent and committed, in the order of sending, for the assertions of a test (X-12).
SELECT id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until, idempotency_key, workflow_id
FROM horsies_tasks
ORDER BY sent_at, id
