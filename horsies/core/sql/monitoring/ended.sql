-- Tasks that ended recently, by queue, name and state: the newest `most`, and not more than `window` ago. Each group
-- has the number of its tasks that ended in the last minute, and how far back the whole result reaches, in seconds.
WITH newest AS (
    SELECT status, queue_name, task_name, ended_at FROM horsies_tasks
    WHERE ended_at IS NOT NULL AND ended_at > now() - %(window)s::interval ORDER BY ended_at DESC LIMIT %(most)s
), reach AS (
    SELECT CASE WHEN count(*) < %(most)s THEN extract(epoch FROM %(window)s::interval)
                ELSE GREATEST(0.001, extract(epoch FROM now() - LEAST(min(ended_at), now()))) END::float8 AS seconds FROM newest
)
SELECT n.status, n.queue_name, n.task_name, count(*), count(*) FILTER (WHERE n.ended_at > now() - interval '1 minute'),
       (SELECT seconds FROM reach)
FROM newest n GROUP BY n.status, n.queue_name, n.task_name
