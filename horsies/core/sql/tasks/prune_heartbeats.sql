-- Deletes heartbeats older than `age` (R-80), the oldest first, but none that could still tell that a task lives: it must
-- also be older than the longest threshold by which anybody judges, the caller (`longest`) or a registered worker (R-82).
DELETE FROM horsies_heartbeats WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM horsies_heartbeats
    WHERE sent_at < now() - GREATEST(%(age)s::interval, %(longest)s::interval, (
        SELECT interval '1 ms' * max(GREATEST(
            jsonb_path_query_first(recovery, '$.claimed_stale_threshold_ms ? (@ >= 0 && @ <= 1e11)')::float8,
            jsonb_path_query_first(recovery, '$.running_stale_threshold_ms ? (@ >= 0 && @ <= 1e11)')::float8,
            jsonb_path_query_first(recovery, '$.finalizing_stale_threshold_ms ? (@ >= 0 && @ <= 1e11)')::float8,
            jsonb_path_query_first(recovery, '$.worker_recovery.sweep_threshold ? (@ >= 0 && @ <= 1e11)')::float8
                * jsonb_path_query_first(recovery, '$.worker_recovery.resilient_sweep_threshold_multiplier ? (@ >= 0 && @ <= 1000)')::float8))
        FROM horsies_workers))
    ORDER BY sent_at LIMIT %(most)s FOR UPDATE SKIP LOCKED))
RETURNING TRUE
