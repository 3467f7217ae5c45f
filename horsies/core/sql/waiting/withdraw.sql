-- No client of this process waits for these tasks any more. An array is used, because a join would read the whole list.
-- The rows are locked in the order in which announce.sql writes them; otherwise the two could wait for each other.
DELETE FROM horsies_waiting WHERE holder = %(holder)s AND topic = ANY(ARRAY(
    SELECT topic FROM horsies_waiting
    WHERE holder = %(holder)s AND topic = ANY(ARRAY(SELECT 'task:' || w.id FROM unnest(%(ids)s::text[]) AS w(id)))
    ORDER BY topic FOR UPDATE))
