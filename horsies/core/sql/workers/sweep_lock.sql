-- One sweep at a time, for this transaction (D-62), and what that calls now.
SELECT pg_try_advisory_xact_lock(%(key)s), now()
