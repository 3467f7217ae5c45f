-- What may be large is compressed with lz4 where the server can do that: PostgreSQL 14 or newer that was built with it. The
-- usual method takes many times as long. Values that are already there stay as they are. As text, because an older server
-- would not understand the command.
DO $$
DECLARE it record;
BEGIN
    FOR it IN
        SELECT c.oid::regclass AS name, string_agg(format('ALTER COLUMN %I SET COMPRESSION lz4', a.attname), ', ') AS changes
        FROM (VALUES ('horsies_tasks', 'args'), ('horsies_tasks', 'kwargs'), ('horsies_tasks', 'result'),
                     ('horsies_workflow_tasks', 'task_kwargs'), ('horsies_workflow_tasks', 'result'),
                     ('horsies_workflows', 'result'), ('horsies_task_logs', 'lines')) AS v(name, attname)
        JOIN pg_class c ON c.oid = to_regclass(v.name)
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = v.attname
        WHERE EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals))
          AND to_jsonb(a) ->> 'attcompression' IS DISTINCT FROM 'l'  -- as JSON: the column is newer than the oldest server
        GROUP BY c.oid
    LOOP
        EXECUTE format('ALTER TABLE %s %s', it.name, it.changes);
    END LOOP;
END $$
