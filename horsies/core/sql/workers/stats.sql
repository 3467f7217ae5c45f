-- What runs where (M-40): the running tasks of each child process, and the newest heartbeat of any of them.
SELECT t.worker_hostname, t.worker_pid, t.worker_process_name, count(*) AS active_tasks,
    min(t.started_at) AS oldest_task_start, max(h.sent_at) AS latest_heartbeat
FROM horsies_tasks t
LEFT JOIN LATERAL (
    SELECT sent_at FROM horsies_heartbeats WHERE task_id = t.id AND role = 'runner' ORDER BY sent_at DESC LIMIT 1
) h ON TRUE
WHERE t.claimed AND t.status = 'RUNNING'
GROUP BY t.worker_hostname, t.worker_pid, t.worker_process_name
ORDER BY t.worker_hostname, t.worker_pid, t.worker_process_name
