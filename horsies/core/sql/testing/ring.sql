-- Wakes the workers of the queues in which tasks are due now, because a test has let time pass (X-13).
SELECT horsies_ring(q.queue_name, q.id, NULL) FROM (
    SELECT DISTINCT ON (queue_name) queue_name, id FROM horsies_tasks
    WHERE is_waiting AND enqueued_at <= now() AND (next_retry_at IS NULL OR next_retry_at <= now())
    ORDER BY queue_name, id
) q
