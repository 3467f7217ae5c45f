-- When these run-time schedules were last changed; those that were removed are not there.
SELECT name, LEAST(GREATEST(updated_at, '1970-01-01Z'), '9999-12-01Z') AS updated_at, paused
FROM horsies_schedules WHERE name = ANY(%(names)s::text[])
