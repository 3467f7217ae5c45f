-- The state of each schedule (D-35), and the definition of those that were added at run time (D-36). An instant that
-- Python cannot represent ('infinity' means that the schedule does not fire until it is changed) becomes one that it
-- can. The definition is text, so that one that cannot be parsed affects only its own schedule.
SELECT COALESCE(s.schedule_name, d.name) AS name, CASE WHEN d.name IS NULL THEN 'code' ELSE 'database' END AS source,
       COALESCE(d.paused, FALSE) AS paused,
       CASE WHEN s.last_run_at > '9999-12-01Z' THEN '9999-12-01Z' WHEN s.last_run_at < '1970-01-01Z' THEN '1970-01-01Z'
            ELSE s.last_run_at END AS last_run_at,
       a.next_run_at, s.last_task_id, COALESCE(s.run_count, 0) AS run_count,
       a.is_active, CASE WHEN a.is_active THEN GREATEST(0, COALESCE(extract(epoch FROM now() - a.next_run_at), 0))
                    ELSE 0 END::float8 AS lag_seconds,
       s.config_hash,
       LEAST(GREATEST(COALESCE(s.updated_at, d.updated_at), '1970-01-01Z'), '9999-12-01Z') AS updated_at,
       d.definition::text
FROM horsies_schedule_state s FULL JOIN horsies_schedules d ON d.name = s.schedule_name
CROSS JOIN LATERAL (
    SELECT NOT COALESCE(d.paused OR d.definition -> 'enabled' = 'false', FALSE) AS is_active,
           CASE WHEN s.next_run_at > '9999-12-01Z' THEN '9999-12-01Z' WHEN s.next_run_at < '1970-01-01Z' THEN '1970-01-01Z'
                ELSE s.next_run_at END AS next_run_at
) a
ORDER BY 1 LIMIT %(most)s
