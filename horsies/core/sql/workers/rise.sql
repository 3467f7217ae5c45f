-- The worker is busy again: nobody needs to ring for it.
DELETE FROM horsies_waiting WHERE holder = %(worker_id)s
