-- Adds the moves of these queues, or of all that are counted, to their sums (D-56). Who else does so at this moment is not
-- waited for. It needs no claim lock: in every snapshot the newest sum and the moves that are left come to the same. It must
-- be a transaction of its own, because the moves of its own transaction would be taken for summed up.
-- `capped` are queues that the caller still has a cap for.
WITH newest AS (
    SELECT q.name, l.number, l.held, l.running, l.used_at,
           -- Numbers of another server, from a dump, mean nothing here.
           CASE WHEN l.after_xid <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint THEN l.after_xid ELSE 0 END AS after_xid,
           l.open_xids
    FROM unnest(COALESCE(%(queues)s::text[], ARRAY(SELECT DISTINCT queue_name FROM horsies_load))) AS q(name)
    CROSS JOIN LATERAL (
        SELECT * FROM horsies_load WHERE queue_name = q.name ORDER BY number DESC LIMIT 1 FOR UPDATE SKIP LOCKED
    ) l
), moves AS (
    SELECT n.name, m.at, m.held, m.running FROM newest n CROSS JOIN LATERAL (
        SELECT ctid AS at, held, running FROM horsies_load_moves WHERE queue_name = n.name AND xid >= n.after_xid
        UNION ALL
        -- One by one: before PostgreSQL 17 a list and a range together read the whole range, with all that was deleted from it.
        SELECT o.* FROM unnest(n.open_xids) AS x(id) CROSS JOIN LATERAL (
            SELECT ctid AS at, held, running FROM horsies_load_moves WHERE queue_name = n.name AND xid = x.id OFFSET 0
        ) o WHERE x.id < n.after_xid
    ) m
), folded AS (
    DELETE FROM horsies_load_moves m USING moves f WHERE m.ctid = f.at
), replaced AS (
    DELETE FROM horsies_load l USING newest n WHERE l.queue_name = n.name AND l.number = n.number
)
INSERT INTO horsies_load (queue_name, number, held, running, after_xid, open_xids, used_at)
SELECT n.name, n.number + 1, n.held + COALESCE(f.held, 0), n.running + COALESCE(f.running, 0),
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS x),
       -- One that is not believed any more must be counted anew.
       CASE WHEN n.name = ANY(%(capped)s::text[]) AND n.used_at > statement_timestamp() - interval '36 hours'
            THEN statement_timestamp() ELSE n.used_at END
FROM newest n LEFT JOIN (SELECT name, sum(held) AS held, sum(running) AS running FROM moves GROUP BY name) f USING (name)
-- A crash of the server may lose this; then it loses all of it.
WHERE set_config('synchronous_commit', 'off', TRUE) IS NOT NULL
