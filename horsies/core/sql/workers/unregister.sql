-- The last thing a worker does in the database (W-53).
DELETE FROM horsies_workers WHERE worker_id = %(worker_id)s
