-- A worker is about to sleep on these queues (D-60, mode when_waiting): leave word, so that an insert rings.
INSERT INTO horsies_waiting (topic, holder, until)
SELECT 'queue:' || q, %(worker_id)s, now() + %(until)s::interval FROM unnest(%(queues)s::text[]) AS q
ON CONFLICT (topic, holder) DO UPDATE SET until = EXCLUDED.until
