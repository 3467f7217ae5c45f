-- Before the lock of the table: how long to wait for it, and how long to keep it if the worker is paused meanwhile.
SELECT set_config('lock_timeout', %(patience_ms)s::text, TRUE), set_config('idle_in_transaction_session_timeout', '2s', TRUE)
