-- Nobody here waits for these tasks any more. (By an array: a join would read the whole list to find its own.) Locked in
-- order, as they are announced: else the two could wait for each other.
DELETE FROM horsies_waiting WHERE holder = %(holder)s AND topic = ANY(ARRAY(
    SELECT topic FROM horsies_waiting
    WHERE holder = %(holder)s AND topic = ANY(ARRAY(SELECT 'task:' || w.id FROM unnest(%(ids)s::text[]) AS w(id)))
    ORDER BY topic FOR UPDATE))
