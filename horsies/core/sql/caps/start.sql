-- Counts what is in flight in queues that are not counted yet, or in all together ('*'), while nobody changes a task. From
-- then on the triggers of the table note every move (D-56). What an earlier count has left is of no use, nor is one that
-- nobody has used for long, which may not have been kept up.
WITH wanted AS (
    SELECT q.name, l.number FROM unnest(%(queues)s::text[]) AS q(name) LEFT JOIN LATERAL (
        SELECT number, used_at FROM horsies_load WHERE queue_name = q.name ORDER BY number DESC LIMIT 1
    ) l ON TRUE
    WHERE l.used_at IS NULL OR l.used_at < statement_timestamp() - interval '36 hours'
), forgotten AS (
    DELETE FROM horsies_load l USING wanted w WHERE l.queue_name = w.name
), cleared AS (
    DELETE FROM horsies_load_moves m USING wanted w WHERE m.queue_name = w.name
), in_flight AS (
    SELECT COALESCE(queue_name, '*') AS name, count(*) AS held, count(*) FILTER (WHERE status = 'RUNNING') AS running
    FROM horsies_tasks WHERE claimed GROUP BY GROUPING SETS ((queue_name), ())
)
INSERT INTO horsies_load (queue_name, number, held, running)
SELECT w.name, COALESCE(w.number, 0) + 1, COALESCE(f.held, 0), COALESCE(f.running, 0) FROM wanted w LEFT JOIN in_flight f USING (name)
