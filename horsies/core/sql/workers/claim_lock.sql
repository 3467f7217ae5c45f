-- One counting claim pass at a time, cluster-wide (W-23).
SELECT pg_advisory_xact_lock(%(key)s)
