-- Returns when the given run-time schedules were last changed; removed ones are not returned.
SELECT name, LEAST(GREATEST(updated_at, '1970-01-01Z'), '9999-12-01Z') AS updated_at, paused
FROM horsies_schedules WHERE name = ANY(%(names)s::text[])
