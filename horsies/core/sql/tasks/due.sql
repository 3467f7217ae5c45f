-- Tasks that a claim would look at, of each queue the first `most` in the order of the claim, without those that are known to be
-- refused: asked only after the database has refused a claim for what is in one of them (L-19a).
SELECT t.id, t.claim_seq, t.task_name, t.queue_name, t.workflow_id
FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS q(name, place) CROSS JOIN LATERAL (
    SELECT * FROM horsies_tasks p
    WHERE is_waiting AND NOT is_held AND queue_name = q.name AND enqueued_at <= statement_timestamp()
      AND (next_retry_at IS NULL OR next_retry_at <= statement_timestamp())
      AND (good_until IS NULL OR good_until > statement_timestamp())
      AND (workflow_id IS NULL
           OR (SELECT w.status FROM horsies_workflows w WHERE w.id = p.workflow_id) IN ('PENDING', 'RUNNING'))
      AND id <> ALL(%(without)s::text[])
    ORDER BY priority, enqueued_at, id LIMIT %(most)s
) t
ORDER BY q.place, t.priority, t.enqueued_at, t.id LIMIT %(most)s
