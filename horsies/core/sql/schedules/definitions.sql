-- Returns run-time schedules as they are stored. They are text, so that one that cannot be parsed does not affect the others.
SELECT name, definition::text, paused, LEAST(GREATEST(updated_at, '1970-01-01Z'), '9999-12-01Z') AS updated_at
FROM horsies_schedules WHERE name = ANY(%(names)s::text[]) ORDER BY name
