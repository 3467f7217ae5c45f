-- The workers that there may be evidence about (R-100): those with the same processes before them, and those that have not
-- been heard of for two of their own intervals and hold claims that could go back. What is NULL proves nothing.
SELECT w.worker_id, w.hostname, w.boot_id, w.pid_namespace, w.pid, w.process_start, w.liveness_key, w.sweeping, s.is_silent
FROM horsies_workers w CROSS JOIN LATERAL (
    SELECT COALESCE(w.last_heartbeat_at < now() - jsonb_path_query_first(w.recovery, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8
                                                  * 2 * interval '1 ms', FALSE) AS is_silent
    OFFSET 0
) s
WHERE w.worker_id <> %(worker_id)s AND w.liveness_key IS NOT NULL
  AND ((w.hostname = %(hostname)s AND w.boot_id = %(boot_id)s AND w.pid_namespace = %(pid_namespace)s)
       OR (s.is_silent AND (
           SELECT t.id FROM horsies_tasks t WHERE t.claimed AND t.claimed_by_worker_id = w.worker_id AND t.status = 'CLAIMED'
             AND NOT t.recovery_enrolled LIMIT 1) IS NOT NULL))
ORDER BY w.worker_id
