-- Returns what a scheduler asks at each check: the database's time (S-43), and the version of the run-time schedules.
SELECT now(), COALESCE((SELECT CASE WHEN value ~ '^[0-9]{1,18}$' THEN value::bigint END FROM horsies_meta WHERE key = 'schedules_version'), 0)
