-- One heartbeat round: which of these claims does this worker still hold (R-11)? For each that it holds and vouches for, a
-- row: `claimer` while CLAIMED, `runner` while RUNNING. A claim that is not returned is lost.
WITH held AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(vouched)s::bool[], %(senders)s::text[], %(pids)s::int[])
             AS h(id, claim_seq, vouched, sender, pid)
), owned AS (
    -- One by one by their ids: a join could be planned as a walk through the whole table.
    SELECT t.id, t.status, h.vouched, h.sender, h.pid FROM held h CROSS JOIN LATERAL (
        SELECT id, status FROM horsies_tasks
        WHERE id = h.id AND claim_seq = h.claim_seq AND status IN ('CLAIMED', 'RUNNING')
          AND claimed_by_worker_id = %(worker_id)s
        OFFSET 0
    ) t
), beat AS (
    INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at, hostname, pid)
    SELECT id, sender, CASE status WHEN 'CLAIMED' THEN 'claimer' ELSE 'runner' END, now(), %(hostname)s, pid
    FROM owned WHERE vouched
)
SELECT id, (SELECT set_config('synchronous_commit', 'off', TRUE)) FROM owned
