-- Whom nobody has swept (R-68): workers that take part in sweeping, silent for their threshold and two of their sweep intervals
-- more, by their own settings; and owners of enrolled tasks that are not registered, if a task has shown no sign of life for
-- `silence`. Never the one who asks. The answer has the form of that of `dead`; tasks of the unregistered that are not silent
-- for as long are deferred.
WITH RECURSIVE owners AS (
    (SELECT claimed_by_worker_id::text AS id FROM horsies_tasks WHERE claimed AND claimed_by_worker_id > ''
     ORDER BY claimed_by_worker_id LIMIT 1)
    UNION ALL
    SELECT n.id FROM owners o CROSS JOIN LATERAL (
        SELECT claimed_by_worker_id::text AS id FROM horsies_tasks WHERE claimed AND claimed_by_worker_id > o.id
        ORDER BY claimed_by_worker_id LIMIT 1
    ) n
), settled AS (
    SELECT w.worker_id::text AS id, w.last_heartbeat_at AS seen,
           GREATEST(COALESCE(jsonb_path_query_first(o.own, '$.sweep_threshold ? (@ >= 0 && @ <= 1e11)')::float8 * interval '1 ms', %(threshold)s::interval),
               jsonb_path_query_first(o.own, '$.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8 * 2 * interval '1 ms') AS threshold,
           COALESCE(jsonb_path_query_first(o.own, '$.sweep_interval ? (@ >= 0 && @ <= 1e11)')::float8 * interval '1 ms', %(interval)s::interval) AS pause,
           GREATEST(%(finalizing)s::interval, GREATEST(jsonb_path_query_first(w.recovery, '$.finalizing_stale_threshold_ms ? (@ >= 0 && @ <= 1e11)')::float8,
               jsonb_path_query_first(w.recovery, '$.runner_heartbeat_interval_ms ? (@ >= 0 && @ <= 1e11)')::float8 * 2) * interval '1 ms') AS finalizing,
           COALESCE(jsonb_path_query_first(o.own, '$.resilient_sweep_threshold_multiplier ? (@ >= 1 && @ <= 1000)')::int, %(multiplier)s) AS multiplier,
           CASE jsonb_typeof(o.own -> 'resilient_job_flags') WHEN 'array' THEN o.own -> 'resilient_job_flags'
               ELSE to_jsonb(%(resilient_flags)s::text[]) END AS flags
    FROM horsies_workers w CROSS JOIN LATERAL (SELECT w.recovery -> 'worker_recovery' AS own) o
    WHERE w.sweeping AND w.worker_id <> %(me)s
), judged AS (
    SELECT s.id, s.seen, s.pause, s.finalizing, s.threshold * CASE WHEN (
               SELECT t.id FROM horsies_tasks t
               WHERE t.claimed AND t.claimed_by_worker_id = s.id AND EXISTS (
                   SELECT FROM jsonb_array_elements_text(s.flags) AS f(name)
                   WHERE t.flags -> f.name NOT IN ('false', 'null', '0', '""'))
               LIMIT 1) IS NOT NULL THEN s.multiplier ELSE 1 END AS threshold
    FROM settled s WHERE s.seen < now() - s.threshold - 2 * s.pause
)
SELECT id, seen, extract(epoch FROM threshold)::float8, extract(epoch FROM finalizing)::float8, NULL::float8
FROM judged WHERE seen < now() - threshold - 2 * pause
UNION ALL
SELECT o.id, NULL, extract(epoch FROM %(threshold)s::interval)::float8, extract(epoch FROM %(finalizing)s::interval)::float8,
       extract(epoch FROM %(silence)s::interval)::float8
FROM owners o
WHERE o.id <> %(me)s AND (SELECT w.worker_id FROM horsies_workers w WHERE w.worker_id = o.id) IS NULL
  AND (SELECT t.id FROM horsies_tasks t
       WHERE t.claimed AND t.claimed_by_worker_id = o.id AND t.recovery_enrolled
         AND GREATEST(t.claimed_at, t.started_at,
                 (SELECT max(h.sent_at) FROM horsies_heartbeats h WHERE h.task_id = t.id)) < now() - %(silence)s::interval
       LIMIT 1) IS NOT NULL
