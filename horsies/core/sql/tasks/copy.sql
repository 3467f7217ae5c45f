-- New tasks, PENDING (L-04, T-44), with ids that nobody has used and without idempotency keys: many of them cost the server
-- half of what tasks/insert costs. It cannot pass over a row that is there, so whatever it does not write, that statement
-- decides about. What differs from row to row comes first: `store/sends.py` writes the rows.
COPY horsies_tasks (id, args, kwargs, enqueue_sha, task_name, queue_name, priority, sent_at, enqueued_at, good_until,
    max_retries, task_options, flags) FROM STDIN
