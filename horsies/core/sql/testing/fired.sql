-- How often all schedules together have fired, to see whether a further check has sent more (X-13).
SELECT COALESCE(sum(run_count), 0)::bigint FROM horsies_schedule_state
