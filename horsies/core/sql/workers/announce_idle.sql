-- A worker is about to sleep on these queues: where the recorded mode is when_waiting (D-60), leave word, so that an insert
-- rings. The answer is the mode, which somebody may have changed meanwhile.
WITH recorded AS (
    SELECT COALESCE((SELECT value FROM horsies_meta WHERE key = 'notify'), 'always') AS mode
), word AS (
    INSERT INTO horsies_waiting (topic, holder, until)
    SELECT 'queue:' || q, %(worker_id)s, clock_timestamp() + %(until)s::interval
    FROM recorded CROSS JOIN unnest(%(queues)s::text[]) AS q WHERE mode = 'when_waiting' ORDER BY 1
    ON CONFLICT (topic, holder) DO UPDATE SET until = EXCLUDED.until
)
SELECT mode FROM recorded
