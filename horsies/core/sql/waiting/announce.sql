-- Clients wait for these tasks (D-60, mode when_waiting): write waiting marks, so that their end sends a notification.
INSERT INTO horsies_waiting (topic, holder, until)
SELECT 'task:' || w.id, %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s)
FROM unnest(%(ids)s::text[]) AS w(id)
ORDER BY 1
ON CONFLICT (topic, holder) DO UPDATE SET until = EXCLUDED.until
