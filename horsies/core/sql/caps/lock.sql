-- Lets one pass at a time claim under a cap (W-23, D-62): the lock of each queue with a cap, after the one for all in its
-- shared form, or only that one, if there is a cap for all. Older workers take only that one for any cap, and so exclude all.
SELECT CASE WHEN l.is_shared THEN pg_advisory_xact_lock_shared(l.key) ELSE pg_advisory_xact_lock(l.key) END
FROM unnest(%(keys)s::bigint[], %(shared)s::bool[]) AS l(key, is_shared)
-- A worker that is paused before it has sent the rest must not keep them.
WHERE set_config('idle_in_transaction_session_timeout', '5s', TRUE) IS NOT NULL
