-- The right to change one schedule, until the end of the transaction (D-62): waits for who fires it just now.
SELECT pg_advisory_xact_lock(%(key)s)
