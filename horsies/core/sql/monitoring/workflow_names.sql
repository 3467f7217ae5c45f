-- The names of workflows, along the index from one to the next: there may be a million of each.
WITH RECURSIVE found AS (
    (SELECT name FROM horsies_workflows ORDER BY name LIMIT 1)
    UNION ALL
    SELECT (SELECT w.name FROM horsies_workflows w WHERE w.name > f.name ORDER BY w.name LIMIT 1)
    FROM found f WHERE f.name IS NOT NULL
)
SELECT name FROM found WHERE name IS NOT NULL LIMIT %(most)s
