-- The rows that stood in the way of an insert, by id (T-54) or by idempotency key (T-57), each with the place of the send
-- it concerns. By id comes first: it is the same send, whatever its key.
SELECT DISTINCT ON (w.place) w.place, w.id = t.id AS same_id, t.id, t.enqueue_sha, t.queue_name, t.priority,
    t.args, t.kwargs, t.task_options, t.flags::text AS flags
FROM json_to_recordset(%(rows)s::json) AS w(place int, id text, task_name text, idempotency_key text)
CROSS JOIN LATERAL (
    SELECT * FROM horsies_tasks WHERE id = w.id
    UNION ALL
    SELECT * FROM horsies_tasks WHERE task_name = w.task_name AND idempotency_key = w.idempotency_key
) t
ORDER BY w.place, same_id DESC
