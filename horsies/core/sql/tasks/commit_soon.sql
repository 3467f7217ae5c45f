-- The commit of this transaction does not wait for the disk: a crash of the server may lose what it has written.
SELECT set_config('synchronous_commit', 'off', TRUE)
