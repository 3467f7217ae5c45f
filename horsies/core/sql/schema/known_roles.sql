-- Those of these roles that exist.
SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%(roles)s::text[])
