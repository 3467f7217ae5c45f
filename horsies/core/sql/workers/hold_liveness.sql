-- Taken by the LISTEN session and held while it lives; shared, so that a reconnecting worker does not wait for its own
-- dead session (D-62).
SELECT pg_advisory_lock_shared(%(key)s)
