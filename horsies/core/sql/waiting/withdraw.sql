-- Nobody here waits for these tasks any more.
DELETE FROM horsies_waiting
WHERE holder = %(holder)s AND topic IN (SELECT 'task:' || w.id FROM unnest(%(ids)s::text[]) AS w(id))
