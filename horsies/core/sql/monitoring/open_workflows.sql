-- How many workflows have not ended, by state.
SELECT status, count(*) FROM horsies_workflows WHERE status IN ('PENDING', 'RUNNING', 'PAUSED') GROUP BY status
