-- Takes the lock of one schedule, until the end of the transaction (D-62). It waits for a scheduler that is firing it.
SELECT pg_advisory_xact_lock(%(key)s)
