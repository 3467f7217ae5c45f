-- Of these tasks the ones there is something to say about: those that ended, and (with no status) those not there at all.
SELECT w.id, t.task_name, t.status, t.result, t.failed_reason
FROM unnest(%(ids)s::text[]) AS w(id)
LEFT JOIN LATERAL (
    -- One by one by their ids: a join could be planned as a walk through the whole table.
    SELECT id, task_name, status, result, failed_reason FROM horsies_tasks WHERE id = w.id OFFSET 0
) t ON TRUE
WHERE t.id IS NULL OR t.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
