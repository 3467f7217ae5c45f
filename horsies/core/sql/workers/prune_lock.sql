-- One pruner at a time, for this transaction (D-62). Its commit does not wait for the disk unless it must be `durable`:
-- what a crash of the server brings back is old, and is deleted again (R-84).
SELECT pg_try_advisory_xact_lock(%(key)s), (SELECT set_config('synchronous_commit', 'off', TRUE) WHERE NOT %(durable)s)
