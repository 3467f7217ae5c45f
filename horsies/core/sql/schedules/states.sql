-- How schedules stand, without waiting for who fires them. Only a hint: whoever fires reads again under the locks.
-- An instant that Python has none for ('infinity': not to fire until it is changed) becomes one that it has.
SELECT schedule_name,
       CASE WHEN last_run_at > '9999-12-01Z' THEN '9999-12-01Z' WHEN last_run_at < '1970-01-01Z' THEN '1970-01-01Z'
            ELSE last_run_at END AS last_run_at,
       CASE WHEN next_run_at > '9999-12-01Z' THEN '9999-12-01Z' WHEN next_run_at < '1970-01-01Z' THEN '1970-01-01Z'
            ELSE next_run_at END AS next_run_at,
       last_task_id, run_count, config_hash
FROM horsies_schedule_state WHERE schedule_name = ANY(%(names)s::text[])
