-- Moves schedules to their next run, after their slots were sent (S-33) or because their configuration has changed (S-37). The
-- caller holds their locks and has read their states under these. A schedule without slots keeps its last run.
UPDATE horsies_schedule_state s
SET next_run_at = w.next_run_at, config_hash = w.config_hash, last_run_at = COALESCE(w.last_run_at, s.last_run_at),
    last_task_id = COALESCE(w.last_task_id, s.last_task_id), run_count = LEAST(s.run_count::bigint + w.runs, 2147483647), updated_at = now()
FROM json_to_recordset(%(rows)s::json) AS w(name text, next_run_at timestamptz, config_hash text,
    last_run_at timestamptz, last_task_id text, runs int)
WHERE s.schedule_name = w.name
