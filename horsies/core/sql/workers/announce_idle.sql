-- A worker is about to sleep on these queues. Unless the recorded mode is off (D-60), leave a mark, so that a new task wakes
-- it, unless the task has one of the names that it leaves to others (O-31). The answer is the mode, which somebody may have changed meanwhile.
WITH recorded AS (
    SELECT COALESCE((SELECT value FROM horsies_meta WHERE key = 'notify'), 'always') AS mode
), announced AS (
    INSERT INTO horsies_waiting (topic, holder, until, queues, wake_key, leaves)
    SELECT 'worker', %(worker_id)s, clock_timestamp() + %(until)s::interval, %(queues)s::text[], %(wake_key)s, %(leaves)s::text[]
    FROM recorded WHERE mode <> 'off'
    ON CONFLICT (topic, holder) DO UPDATE
    SET until = EXCLUDED.until, queues = EXCLUDED.queues, wake_key = EXCLUDED.wake_key, leaves = EXCLUDED.leaves
)
SELECT mode FROM recorded
