-- Returns what a scheduler asks at each check: the database's time (S-43), and the version of the run-time schedules.
SELECT now(), COALESCE((SELECT value::bigint FROM horsies_meta WHERE key = 'schedules_version'), 0)
