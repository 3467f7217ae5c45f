-- Inserts the states of schedules that are seen for the first time (S-31). A schedule that has a row is left alone and not
-- returned. The same applies if another session is deleting its row, because ON CONFLICT would wait for that session.
INSERT INTO horsies_schedule_state (schedule_name, next_run_at, config_hash, updated_at)
SELECT w.name, w.next_run_at, w.config_hash, now()
FROM json_to_recordset(%(rows)s::json) AS w(name text, next_run_at timestamptz, config_hash text)
WHERE NOT EXISTS (SELECT 1 FROM horsies_schedule_state s WHERE s.schedule_name = w.name)
ORDER BY w.name
ON CONFLICT (schedule_name) DO NOTHING
RETURNING schedule_name
