-- Returns the states of schedules that are about to be fired, under their locks (S-32). A row that another session keeps locked
-- is left out, so that it does not hold up the others.
-- A time that Python cannot represent ('infinity' means: do not fire until this is changed) becomes one that it can.
SELECT schedule_name,
       CASE WHEN last_run_at > '9999-12-01Z' THEN '9999-12-01Z' WHEN last_run_at < '1970-01-01Z' THEN '1970-01-01Z'
            ELSE last_run_at END AS last_run_at,
       CASE WHEN next_run_at > '9999-12-01Z' THEN '9999-12-01Z' WHEN next_run_at < '1970-01-01Z' THEN '1970-01-01Z'
            ELSE next_run_at END AS next_run_at,
       last_task_id, run_count, config_hash
FROM horsies_schedule_state WHERE schedule_name = ANY(%(names)s::text[])
ORDER BY schedule_name FOR UPDATE SKIP LOCKED
