-- The right to fire these schedules, until the end of the transaction (D-62). Those that somebody else holds are left out;
-- nobody waits. Apart from the reading: a later statement sees what the holder before us has committed. A scheduler that is
-- frozen in the middle loses its session, and with it the locks (SET LOCAL, without a statement of its own).
SELECT w.name, now()
FROM unnest(%(names)s::text[], %(keys)s::bigint[]) AS w(name, key)
WHERE set_config('idle_in_transaction_session_timeout', '10s', true) IS NOT NULL AND pg_try_advisory_xact_lock(w.key)
