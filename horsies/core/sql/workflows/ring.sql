-- Wakes the workers of the queues in which tasks of the given workflows wait, because these can be claimed again (F-52).
SELECT horsies_ring(q.queue_name, q.id, NULL) FROM (
    SELECT DISTINCT ON (t.queue_name) t.queue_name, t.id
    FROM unnest(%(ids)s::text[]) AS w(id) CROSS JOIN LATERAL (
        SELECT task_id FROM horsies_workflow_tasks
        WHERE workflow_id = w.id AND status IN ('ENQUEUED', 'RUNNING') OFFSET 0
    ) n CROSS JOIN LATERAL (
        SELECT id, queue_name, status FROM horsies_tasks WHERE id = n.task_id OFFSET 0
    ) t
    WHERE t.status = 'PENDING'
    ORDER BY t.queue_name, t.id
) q
