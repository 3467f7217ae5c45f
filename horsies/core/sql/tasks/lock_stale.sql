-- Of the tasks that were found silent (`find_stale`), those of which nothing has been heard since (R-12, R-14): the same
-- claim in the same state, no newer heartbeat, no newer mark. Taken by id, as everybody does; rows that somebody else has
-- are left to him (R-15).
SELECT t.id FROM (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(owners)s::text[], %(statuses)s::text[],
                         %(heartbeats)s::timestamptz[], %(marks)s::timestamptz[])
             AS w(id, claim_seq, owner, status, heartbeat, mark)
    WHERE COALESCE((
        SELECT h.sent_at FROM horsies_heartbeats h
        WHERE h.task_id = w.id AND h.role = CASE w.status WHEN 'RUNNING' THEN 'runner' ELSE 'claimer' END
        ORDER BY h.sent_at DESC LIMIT 1) <= heartbeat, heartbeat IS NULL AND (
        SELECT h.id FROM horsies_heartbeats h
        WHERE h.task_id = w.id AND h.role = CASE w.status WHEN 'RUNNING' THEN 'runner' ELSE 'claimer' END LIMIT 1) IS NULL)
    ORDER BY id
) w CROSS JOIN LATERAL (
    SELECT id FROM horsies_tasks
    WHERE id = w.id AND claim_seq = w.claim_seq AND claimed_by_worker_id = w.owner AND status = w.status
      AND (finalizing_at IS NULL OR finalizing_at <= w.mark)
    FOR UPDATE SKIP LOCKED
) t
