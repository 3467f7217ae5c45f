-- Names of due tasks that no worker of this database has ever known, once there has been one (X-14).
SELECT DISTINCT t.task_name FROM horsies_tasks t
WHERE t.is_waiting AND t.enqueued_at <= now() AND EXISTS (SELECT FROM horsies_known_names)
  AND NOT EXISTS (SELECT FROM horsies_known_names k WHERE t.task_name = ANY(k.names))
LIMIT 5
