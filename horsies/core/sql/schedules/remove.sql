-- A run-time schedule is there no more. Its state stays (S-38).
DELETE FROM horsies_schedules WHERE name = %(name)s RETURNING name
