-- Tasks in flight that have shown no sign of life for longer than `threshold` (R-12), the longest silence first. Only read:
-- one look serves many small steps, and `lock_stale` takes what is still as it was seen. `role` is whose heartbeats count
-- for that status. A result that is being written has the finalizing threshold as well (R-14).
-- Their owners are judged by their own settings where those are more patient (R-63). With `as_given`, a manual call, the
-- threshold holds as it is, and so it does for tasks that are enrolled in worker recovery. Otherwise those are the
-- sweeper's, unless their worker has been heard of since they fell silent and is itself alive (R-65, R-66).
-- A setting that is no sensible number counts as none (R-24), here and in every statement that reads `recovery`.
WITH resilient AS (
    SELECT r.claimed_by_worker_id FROM horsies_tasks r
    WHERE r.claimed AND EXISTS (
        SELECT FROM unnest(%(resilient_flags)s::text[]) AS f(name) WHERE r.flags -> f.name NOT IN ('false', 'null', '0', '""'))
)
SELECT t.id, t.claim_seq, t.claimed_by_worker_id, t.status, t.task_name, t.queue_name, t.task_options, t.retry_count,
       t.max_retries, COALESCE(t.good_until <= now(), FALSE) AS is_overdue, t.workflow_id, t.recovery_enrolled,
       t.started_at, t.worker_hostname, t.worker_pid, t.worker_process_name, s.heartbeat,
       extract(epoch FROM now() - GREATEST(s.begun, s.heartbeat, '0001-01-01Z'))::float8 AS silence, 0 AS recoveries, t.finalizing_at
FROM horsies_tasks t
LEFT JOIN LATERAL (
    SELECT w.worker_id, w.last_heartbeat_at,
           CASE WHEN NOT %(as_given)s THEN GREATEST(
               jsonb_path_query_first(w.recovery -> (lower(%(status)s::text) || '_stale_threshold_ms'), '$ ? (@ >= 0 && @ <= 1e11)')::float8,
               jsonb_path_query_first(w.recovery -> (%(role)s::text || '_heartbeat_interval_ms'), '$ ? (@ >= 0 && @ <= 1e11)')::float8 * 2) END * interval '1 ms' AS threshold,
           GREATEST(jsonb_path_query_first(w.recovery, '$.finalizing_stale_threshold_ms ? (@ >= 0 && @ <= 1e11)')::float8,
               jsonb_path_query_first(w.recovery, '$.runner_heartbeat_interval_ms ? (@ >= 0 && @ <= 1e11)')::float8 * 2) * interval '1 ms' AS finalizing,
           GREATEST(jsonb_path_query_first(w.recovery, '$.worker_recovery.sweep_threshold ? (@ >= 0 && @ <= 1e11)')::float8,
               jsonb_path_query_first(w.recovery, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8 * 2) * interval '1 ms' AS sweep_threshold
    FROM horsies_workers w WHERE w.worker_id = t.claimed_by_worker_id
    OFFSET 0  -- looked up for each task: whoever joins all workers may compare each with each
) o ON TRUE
CROSS JOIN LATERAL (
    SELECT CASE t.status WHEN 'RUNNING' THEN t.started_at ELSE t.claimed_at END AS begun,
           (SELECT h.sent_at FROM horsies_heartbeats h WHERE h.task_id = t.id AND h.role = %(role)s::text
            ORDER BY h.sent_at DESC LIMIT 1) AS heartbeat,
           GREATEST(o.threshold, %(threshold)s::interval) AS threshold
    OFFSET 0  -- else the look for the heartbeat is repeated wherever it is named
) s
WHERE t.claimed AND t.status = %(status)s::text
  -- First what the row itself says: of the heartbeats only those of tasks that may be stale are read.
  AND CASE t.status WHEN 'RUNNING' THEN t.started_at ELSE t.claimed_at END < now() - %(threshold)s::interval
  AND GREATEST(s.begun, s.heartbeat) < now() - s.threshold
  AND (t.finalizing_at IS NULL OR t.finalizing_at < now() - GREATEST(o.finalizing, %(finalizing)s::interval))
  AND (NOT t.recovery_enrolled OR %(as_given)s
       OR (o.last_heartbeat_at >= LEAST(GREATEST(s.begun, s.heartbeat), now()) + s.threshold
           AND o.last_heartbeat_at >= now() - GREATEST(o.sweep_threshold, %(sweep_threshold)s::interval)
               -- Longer for a worker that holds a resilient task (R-60).
               * CASE WHEN o.worker_id IN (SELECT claimed_by_worker_id FROM resilient) THEN %(multiplier)s::int ELSE 1 END))
ORDER BY GREATEST(s.begun, s.heartbeat), t.id LIMIT %(most)s
