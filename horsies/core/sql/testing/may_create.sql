-- Whether this role may make the databases of tests (X-10).
SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user
