-- The triggers of a fresh schema, and what only some servers can do with its tables, which the models cannot say. A migration changes
-- them. All or none: tables whose record in horsies_meta was lost have theirs. Commands that older servers do not know are texts.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger
               WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_notify_insert') THEN
        RETURN;
    END IF;

    CREATE TRIGGER horsies_task_notify_insert AFTER INSERT ON horsies_tasks
        REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION horsies_notify_task_changes();
    CREATE TRIGGER horsies_task_notify_update AFTER UPDATE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
        FOR EACH STATEMENT EXECUTE FUNCTION horsies_notify_task_changes();
    CREATE TRIGGER horsies_task_load_insert AFTER INSERT ON horsies_tasks
        FOR EACH ROW WHEN (NEW.claimed) EXECUTE FUNCTION horsies_count_new_task();
    CREATE TRIGGER horsies_task_load_delete AFTER DELETE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION horsies_count_deleted_tasks();
    CREATE TRIGGER horsies_task_load_truncate AFTER TRUNCATE ON horsies_tasks
        FOR EACH STATEMENT EXECUTE FUNCTION horsies_count_deleted_tasks();
    CREATE TRIGGER horsies_workflow_insert AFTER INSERT ON horsies_workflows
        FOR EACH ROW EXECUTE FUNCTION horsies_notify_workflow_changes();
    CREATE TRIGGER horsies_workflow_update AFTER UPDATE OF status ON horsies_workflows
        FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION horsies_notify_workflow_changes();
    CREATE TRIGGER horsies_worker_names_delete AFTER DELETE ON horsies_workers
        REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION horsies_keep_known_names();
    CREATE TRIGGER horsies_worker_state_insert AFTER INSERT ON horsies_worker_states
        FOR EACH ROW EXECUTE FUNCTION horsies_monitor_worker_states();

    -- The keys from attempts and nodes to their tasks are not checked where a server can leave a key unchecked. Whoever writes an
    -- attempt updates its task in the same statement, and whoever gives a node a task has just inserted it: the check, row by row,
    -- would find again what is so. A trigger does what the keys would do for deleted tasks.
    IF current_setting('server_version_num')::int >= 180000 THEN
        EXECUTE 'ALTER TABLE horsies_workflow_tasks ALTER CONSTRAINT horsies_workflow_tasks_task_id_fkey NOT ENFORCED';
        EXECUTE 'ALTER TABLE horsies_task_attempts ALTER CONSTRAINT horsies_task_attempts_task_id_fkey NOT ENFORCED';
        CREATE TRIGGER horsies_task_keys_delete AFTER DELETE ON horsies_tasks
            REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION horsies_follow_deleted_tasks();
        -- It does nothing. But once a table without any trigger has been vacuumed, PostgreSQL 18 takes it for one without keys, and
        -- refuses to truncate it together with the table that its key names.
        CREATE TRIGGER horsies_attempt_keys_truncate AFTER TRUNCATE ON horsies_task_attempts
            FOR EACH STATEMENT EXECUTE FUNCTION horsies_follow_deleted_tasks();
    END IF;

    -- What may be large is compressed with lz4 from PostgreSQL 14 on, if the server was built with it: the usual method takes many
    -- times as long.
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)) THEN
        EXECUTE 'ALTER TABLE horsies_tasks ALTER args SET COMPRESSION lz4, ALTER kwargs SET COMPRESSION lz4,
            ALTER result SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE horsies_workflow_tasks ALTER task_kwargs SET COMPRESSION lz4, ALTER result SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE horsies_workflows ALTER result SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE horsies_task_logs ALTER lines SET COMPRESSION lz4';
    END IF;
END $$
