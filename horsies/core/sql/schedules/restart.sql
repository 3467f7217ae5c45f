-- Resets the state of a removed schedule that is added again: it begins like a new one at its next run; its history stays.
UPDATE horsies_schedule_state SET next_run_at = NULL, config_hash = NULL, updated_at = now()
WHERE schedule_name = %(name)s
