-- A run-time schedule does not fire any more, or does again. No row, no such schedule.
UPDATE horsies_schedules SET paused = %(paused)s, updated_at = clock_timestamp() WHERE name = %(name)s RETURNING name
