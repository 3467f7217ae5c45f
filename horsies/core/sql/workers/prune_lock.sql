-- One pruner at a time, for this transaction (D-62).
SELECT pg_try_advisory_xact_lock(%(key)s)
