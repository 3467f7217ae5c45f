-- Takes the locks of the given schedules, until the end of the transaction (D-62), without waiting. Schedules that another
-- session has locked are left out. The states are read by a later statement, which sees what the previous holder has
-- committed. A scheduler that freezes in the transaction loses its session after 10 s, and with it the locks.
SELECT w.name, now()
FROM unnest(%(names)s::text[], %(keys)s::bigint[]) AS w(name, key)
WHERE set_config('idle_in_transaction_session_timeout', '10s', true) IS NOT NULL AND pg_try_advisory_xact_lock(w.key)
