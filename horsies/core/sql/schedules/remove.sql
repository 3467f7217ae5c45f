-- Removes a run-time schedule. Its state stays (S-38).
DELETE FROM horsies_schedules WHERE name = %(name)s RETURNING name
