-- A worker is about to sleep on these queues. Where the recorded mode is when_waiting (D-60), record that it waits, so that
-- an insert notifies it. The answer is the mode, which somebody may have changed meanwhile.
WITH recorded AS (
    SELECT COALESCE((SELECT value FROM horsies_meta WHERE key = 'notify'), 'always') AS mode
), announced AS (
    INSERT INTO horsies_waiting (topic, holder, until)
    SELECT 'queue:' || q, %(worker_id)s, clock_timestamp() + %(until)s::interval
    FROM recorded CROSS JOIN unnest(%(queues)s::text[]) AS q WHERE mode = 'when_waiting' ORDER BY 1
    ON CONFLICT (topic, holder) DO UPDATE SET until = EXCLUDED.until
)
SELECT mode FROM recorded
