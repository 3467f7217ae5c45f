-- Nobody watches in this process any more.
DELETE FROM horsies_waiting WHERE topic = 'monitor' AND holder = %(holder)s
