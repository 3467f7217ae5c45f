-- Those of these rights that a role does not have; the role of this session, unless one is named. No right is missing on a
-- table, sequence or function that does not exist: no grant would bring it back.
SELECT w.place
FROM json_to_recordset(%(rights)s::json) AS w(place int, kind text, name text, "column" text, privilege text)
CROSS JOIN LATERAL (SELECT quote_ident(current_schema()) || '.' || w.name AS name) own
CROSS JOIN LATERAL (SELECT COALESCE(%(role)s::name, current_user) AS name) role
WHERE NOT COALESCE(
    CASE w.kind
        WHEN 'SCHEMA' THEN has_schema_privilege(role.name, current_schema()::text, w.privilege)
        WHEN 'DATABASE' THEN has_database_privilege(role.name, current_database()::text, w.privilege)
        WHEN 'SEQUENCE' THEN has_sequence_privilege(role.name, to_regclass(own.name)::oid, w.privilege)
        WHEN 'FUNCTION' THEN has_function_privilege(role.name, to_regprocedure(own.name)::oid, w.privilege)
        ELSE has_table_privilege(role.name, to_regclass(own.name)::oid, w.privilege)
             OR (w."column" IS NOT NULL
                 AND has_column_privilege(role.name, to_regclass(own.name)::oid, w."column", w.privilege))
    END, w.kind NOT IN ('SCHEMA', 'DATABASE'))
ORDER BY w.place
