-- The names of workflows. The statement jumps along the index from name to name, because a name may have a million
-- rows.
WITH RECURSIVE found AS (
    (SELECT name FROM horsies_workflows ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT w.name FROM horsies_workflows w WHERE w.name > f.name ORDER BY w.name LIMIT 1)
    FROM found f WHERE f.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL LIMIT %(most)s
