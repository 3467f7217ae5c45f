-- Pauses or resumes a run-time schedule. No row is returned if there is no such schedule.
UPDATE horsies_schedules SET paused = %(paused)s, updated_at = clock_timestamp() WHERE name = %(name)s RETURNING name
