-- Counts a change of run-time schedules, so that every scheduler reads them again at its next check.
INSERT INTO horsies_meta AS m (key, value) VALUES ('schedules_version', '1')
ON CONFLICT (key) DO UPDATE SET value = CASE WHEN m.value ~ '^[0-9]{1,18}$' THEN m.value::bigint + 1 ELSE 1 END::text
