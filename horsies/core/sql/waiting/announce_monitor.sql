-- Somebody watches (D-61): while this mark is valid, every change of a status and every snapshot of a worker is notified of.
INSERT INTO horsies_waiting (topic, holder, until)
VALUES ('monitor', %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (topic, holder) DO UPDATE SET until = EXCLUDED.until
