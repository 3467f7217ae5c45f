-- Tasks as recovery hooks see them (R-71). What may be large stays text: only a handler that wants to see it reads it.
SELECT t.*
FROM unnest(%(ids)s::text[]) AS w(id)
CROSS JOIN LATERAL (
    -- One by one by their ids: a join could be planned as a walk through the whole table.
    SELECT id, task_name, queue_name, status, claimed_by_worker_id, retry_count, max_retries, priority, enqueued_at,
           claimed_at, started_at, good_until, args, kwargs, flags::text
    FROM horsies_tasks WHERE id = w.id OFFSET 0
) t
