-- Those of these roles that exist, and whether each may already connect here and use the schema.
SELECT rolname::text, has_database_privilege(oid, current_database()::text, 'CONNECT')
                      AND has_schema_privilege(oid, current_schema()::text, 'USAGE')
FROM pg_roles WHERE rolname = ANY(%(roles)s::text[])
