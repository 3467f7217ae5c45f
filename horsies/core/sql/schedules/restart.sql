-- A schedule that was removed is put in place again: it begins at its next run, as at first sight; its history stays.
UPDATE horsies_schedule_state SET next_run_at = NULL, config_hash = NULL, updated_at = now()
WHERE schedule_name = %(name)s
