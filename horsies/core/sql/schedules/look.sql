-- What a scheduler asks at each check: the time that counts (S-43), and whether run-time schedules have changed since.
SELECT now(), COALESCE((SELECT value::bigint FROM horsies_meta WHERE key = 'schedules_version'), 0)
