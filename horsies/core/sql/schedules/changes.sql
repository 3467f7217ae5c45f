-- Returns the run-time schedules that are not as the caller knows them: new, changed, or removed (then only the name is set).
-- Definitions are text, so that one that cannot be parsed does not affect the others.
SELECT name, s.definition::text, s.paused, s.updated_at
FROM unnest(%(names)s::text[], %(changed)s::timestamptz[], %(paused)s::bool[]) AS k(name, changed_at, paused)
FULL JOIN (
    SELECT d.name::text, d.definition, d.paused, LEAST(GREATEST(d.updated_at, '1970-01-01Z'), '9999-12-01Z') AS updated_at
    FROM horsies_schedules d
) s USING (name)
WHERE (s.updated_at, s.paused) IS DISTINCT FROM (k.changed_at, k.paused)
ORDER BY name LIMIT %(most)s
