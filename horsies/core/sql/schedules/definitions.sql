-- Run-time schedules as they are stored. As text: what cannot be parsed concerns one of them, not all that are asked for.
SELECT name, definition::text, paused, LEAST(GREATEST(updated_at, '1970-01-01Z'), '9999-12-01Z') AS updated_at
FROM horsies_schedules WHERE name = ANY(%(names)s::text[]) ORDER BY name
