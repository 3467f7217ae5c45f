-- Who is gone: workers that take part in sweeping and were last heard of longer ago than their threshold (R-44), and owners
-- of enrolled tasks that are not registered (R-45); never the one who asks (R-46).
-- A worker is judged by its own settings where they are more patient, unless the threshold is `as_given` (R-63), and by a
-- multiple if it holds a resilient task (R-60, R-62). With each comes when it was heard of, if it is registered, and how
-- young the heartbeat of a task, or its mark of finalizing, must be to defer it (R-47).
WITH RECURSIVE owners AS (
    -- From one to the next: each may hold thousands of tasks.
    (SELECT claimed_by_worker_id::text AS id FROM horsies_tasks WHERE claimed AND claimed_by_worker_id > ''
     ORDER BY claimed_by_worker_id LIMIT 1)
    UNION ALL
    SELECT n.id FROM owners o CROSS JOIN LATERAL (
        SELECT claimed_by_worker_id::text AS id FROM horsies_tasks WHERE claimed AND claimed_by_worker_id > o.id
        ORDER BY claimed_by_worker_id LIMIT 1
    ) n
), suspects AS (
    SELECT w.worker_id::text AS id, w.last_heartbeat_at AS seen,
           GREATEST(%(threshold)s::interval, CASE WHEN NOT %(as_given)s THEN GREATEST(
               jsonb_path_query_first(w.recovery, '$.worker_recovery.sweep_threshold ? (@ >= 0 && @ <= 1e11)')::float8,
               jsonb_path_query_first(w.recovery, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8 * 2) END * interval '1 ms') AS threshold,
           GREATEST(%(finalizing)s::interval, GREATEST(jsonb_path_query_first(w.recovery, '$.finalizing_stale_threshold_ms ? (@ >= 0 && @ <= 1e11)')::float8,
               jsonb_path_query_first(w.recovery, '$.runner_heartbeat_interval_ms ? (@ >= 0 && @ <= 1e11)')::float8 * 2) * interval '1 ms') AS finalizing
    FROM horsies_workers w
    WHERE w.sweeping AND w.last_heartbeat_at < now() - %(threshold)s::interval
    UNION ALL
    SELECT o.id, NULL, %(threshold)s::interval, %(finalizing)s::interval
    FROM owners o
    -- As values: EXISTS could be planned as a hash of all that is in flight.
    WHERE (SELECT w.worker_id FROM horsies_workers w WHERE w.worker_id = o.id) IS NULL
      AND (SELECT t.id FROM horsies_tasks t WHERE t.claimed AND t.claimed_by_worker_id = o.id AND t.recovery_enrolled LIMIT 1)
          IS NOT NULL
), judged AS (
    SELECT s.id, s.seen, s.finalizing, s.threshold * CASE WHEN (
               SELECT t.id FROM horsies_tasks t
               WHERE t.claimed AND t.claimed_by_worker_id = s.id AND EXISTS (
                   SELECT FROM unnest(%(resilient_flags)s::text[]) AS f(name)
                   WHERE t.flags -> f.name NOT IN ('false', 'null', '0', '""'))
               LIMIT 1) IS NOT NULL THEN %(multiplier)s::int ELSE 1 END AS threshold
    FROM suspects s WHERE s.id <> %(me)s
)
SELECT id, seen, extract(epoch FROM threshold)::float8, extract(epoch FROM finalizing)::float8, NULL::float8
FROM judged WHERE seen IS NULL OR seen < now() - threshold
ORDER BY id
