-- A transaction of several arrows takes all its rows first, by id, as everybody does: no two wait for each other in a ring.
SELECT id FROM horsies_tasks WHERE id = ANY(%(ids)s::text[]) ORDER BY id FOR UPDATE
