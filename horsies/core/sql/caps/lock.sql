-- Lets one pass at a time claim under a cap (W-23, D-62): the lock of each queue with a cap, after the one for all in its
-- shared form, or only that one, if there is a cap for all. Older workers take only that one for any cap, and so exclude all.
-- The answer says whether all these queues are counted (D-56); a claim takes nothing from one that is not.
SELECT CASE WHEN l.is_shared THEN pg_advisory_xact_lock_shared(l.key) ELSE pg_advisory_xact_lock(l.key) END,
       (SELECT count(*) FROM unnest(%(names)s::text[]) AS n(name)
        WHERE (SELECT c.used_at > statement_timestamp() - interval '36 hours' FROM horsies_load c WHERE c.queue_name = n.name
               ORDER BY c.number DESC LIMIT 1)) = cardinality(%(names)s::text[])
FROM unnest(%(keys)s::bigint[], %(shared)s::bool[]) AS l(key, is_shared)
-- A worker that is paused before it has sent the rest must not keep them; older servers cannot see to that.
WHERE current_setting('transaction_timeout', TRUE) IS NULL OR set_config('transaction_timeout', '5s', TRUE) IS NOT NULL
