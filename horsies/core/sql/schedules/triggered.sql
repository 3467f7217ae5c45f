-- Records a task that was sent by hand for this schedule. It counts as a run; no slot was fired, so the times stay.
UPDATE horsies_schedule_state SET last_task_id = %(task_id)s, run_count = LEAST(run_count::bigint + 1, 2147483647), updated_at = now()
WHERE schedule_name = %(name)s
