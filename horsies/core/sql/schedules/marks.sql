-- Returns the names of run-time schedules and when each was last changed, a page at a time.
SELECT name, LEAST(GREATEST(updated_at, '1970-01-01Z'), '9999-12-01Z') AS updated_at, paused
FROM horsies_schedules WHERE name > %(after)s ORDER BY name LIMIT %(most)s
