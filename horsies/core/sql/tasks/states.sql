-- How these tasks stand: what keeps one from being cancelled, sent again, moved or run now.
SELECT t.id, t.status, t.workflow_id, t.queue_name, t.priority, w.status,
       GREATEST(t.enqueued_at, t.next_retry_at) <= now(), COALESCE(t.good_until <= now(), FALSE)
FROM horsies_tasks t
LEFT JOIN LATERAL (SELECT status FROM horsies_workflows WHERE id = t.workflow_id OFFSET 0) w ON TRUE
WHERE t.id = ANY(%(ids)s::text[])
