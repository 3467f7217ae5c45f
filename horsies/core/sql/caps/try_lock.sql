-- One comparison at a time (D-56); who does not get this lock leaves it to the other.
SELECT pg_try_advisory_xact_lock(%(key)s)
