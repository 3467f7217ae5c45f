-- Where this session is connected, and what it may do here. The statement looks only at the first schema of the search
-- path: tables of another installation further down the path are not ours. It reads the catalog as a table, because
-- to_regclass() answers from a cache, which is out of date in a session that has just waited for the schema lock.
SELECT current_setting('server_version_num')::int AS version,
       current_database()::text AS database,
       current_user::text AS "user",
       current_schema()::text AS schema,
       pg_is_in_recovery() AS in_recovery,
       current_setting('transaction_read_only')::bool AS read_only,
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = current_schema() AND c.relname = 'horsies_meta' AND c.relkind = 'r') AS has_meta,
       COALESCE(has_schema_privilege(current_schema(), 'CREATE'), FALSE) AS may_create
