-- Facts about the server and its sessions. Only monitoring roles see the sessions of other users. If some are hidden,
-- the number of listeners is unknown.
SELECT now() AS taken_at, current_setting('server_version') AS server_version,
       (SELECT CASE WHEN value ~ '^[0-9]{1,9}$' THEN value::int END FROM horsies_meta WHERE key = 'schema_version') AS schema_version,
       (SELECT value FROM horsies_meta WHERE key = 'notify') AS notify,
       pg_notification_queue_usage() AS notification_queue_usage, a.sessions,
       CASE WHEN a.hidden = 0 THEN a.listeners END AS listeners, a.oldest_transaction_seconds
FROM (
    SELECT count(*) AS sessions, count(*) FILTER (WHERE query = '<insufficient privilege>') AS hidden,
           count(*) FILTER (WHERE application_name LIKE 'horsies%%listener') AS listeners,
           extract(epoch FROM now() - min(xact_start) FILTER (WHERE pid <> pg_backend_pid()))::float8
               AS oldest_transaction_seconds
    FROM pg_stat_activity WHERE datname = current_database() AND COALESCE(backend_type, 'client backend') = 'client backend'
) a
