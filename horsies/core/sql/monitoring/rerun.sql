-- Sends tasks that ended without success again as new tasks (M-49), each of which names the old one. The old rows do not
-- change. A new row has no idempotency key, or the two would be the same send; it has no trace, because that has
-- ended; and it has no deadline if the old one has passed. Without a given id, the new one follows from the old task and the time of
-- its end, so that two who send the same tasks again send each of them once (M-49a).
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until, max_retries,
    task_options, flags)
SELECT COALESCE(w.new_id, substr(e.ms, 1, 8) || '-' || substr(e.ms, 9) || '-7' || substr(e.hash, 1, 3) || '-8' || substr(e.hash, 4, 3)
           || '-' || substr(e.hash, 7, 12)),
    t.task_name, t.queue_name, t.priority, t.args, t.kwargs, statement_timestamp(), statement_timestamp(),
    CASE WHEN t.good_until > statement_timestamp() THEN t.good_until END, t.max_retries,
    (COALESCE(NULLIF(t.task_options::jsonb, 'null'), '{}') - 'trace' || jsonb_build_object('rerun_of', t.id))::text, t.flags
FROM unnest(%(ids)s::text[], %(new_ids)s::text[]) AS w(id, new_id)
CROSS JOIN LATERAL (
    SELECT * FROM horsies_tasks
    WHERE id = w.id AND status IN ('FAILED', 'CANCELLED', 'EXPIRED') AND workflow_id IS NULL OFFSET 0
) t CROSS JOIN LATERAL (
    SELECT lpad(to_hex(GREATEST(0, extract(epoch FROM t.ended_at) * 1000)::bigint), 12, '0') AS ms, md5('rerun of ' || t.id) AS hash
) e
ORDER BY t.id
ON CONFLICT (id) DO NOTHING
RETURNING task_options::jsonb ->> 'rerun_of', id
