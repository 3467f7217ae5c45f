-- The tasks behind the statistics of failures (M-45c): of the newest `most` that ended since then those that failed, by name and
-- code: how many, the first and the last end, and the ids of the last ones. And whether there are more than were looked at.
WITH newest AS MATERIALIZED (
    SELECT id, task_name, COALESCE(error_code, '') AS error_code, status, ended_at FROM horsies_tasks
    WHERE ended_at IS NOT NULL AND ended_at >= to_timestamp(%(first_s)s::float8) ORDER BY ended_at DESC LIMIT %(most)s
)
SELECT task_name, error_code, count(*), min(ended_at), max(ended_at), (array_agg(id ORDER BY ended_at DESC, id))[1:%(ids)s],
       (SELECT count(*) >= %(most)s FROM newest)
FROM newest WHERE status = 'FAILED' GROUP BY task_name, error_code
