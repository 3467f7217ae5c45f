-- Each trigger is created only if it is missing: to replace one would lock its table for all (and PostgreSQL 13
-- cannot). A trigger whose shape changes is dropped by a migration first.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_notify_insert') THEN
        CREATE TRIGGER horsies_task_notify_insert
        AFTER INSERT ON horsies_tasks
        REFERENCING NEW TABLE AS new_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_notify_task_changes();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_notify_update') THEN
        CREATE TRIGGER horsies_task_notify_update
        AFTER UPDATE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_notify_task_changes();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_load_insert') THEN
        CREATE TRIGGER horsies_task_load_insert
        AFTER INSERT ON horsies_tasks
        FOR EACH ROW WHEN (NEW.claimed)
        EXECUTE FUNCTION horsies_count_new_task();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_load_delete') THEN
        CREATE TRIGGER horsies_task_load_delete
        AFTER DELETE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_count_deleted_tasks();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_load_truncate') THEN
        CREATE TRIGGER horsies_task_load_truncate
        AFTER TRUNCATE ON horsies_tasks
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_count_deleted_tasks();
    END IF;

    -- Only for keys that are not enforced: the others have triggers of their own.
    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_keys_delete')
       AND EXISTS (SELECT FROM pg_constraint c
                   WHERE c.conrelid IN ('horsies_workflow_tasks'::regclass, 'horsies_task_attempts'::regclass)
                     AND c.confrelid = 'horsies_tasks'::regclass AND c.contype = 'f'
                     AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgconstraint = c.oid)) THEN
        CREATE TRIGGER horsies_task_keys_delete
        AFTER DELETE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_follow_deleted_tasks();
    END IF;

    -- It does nothing. But once a table without any trigger has been vacuumed, PostgreSQL 18 takes it for one without keys, and
    -- refuses to truncate it together with the table that its key names.
    IF EXISTS (SELECT FROM pg_trigger
               WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_keys_delete')
       AND NOT EXISTS (SELECT FROM pg_trigger
                       WHERE tgrelid = 'horsies_task_attempts'::regclass AND tgname = 'horsies_attempt_keys_truncate') THEN
        CREATE TRIGGER horsies_attempt_keys_truncate
        AFTER TRUNCATE ON horsies_task_attempts
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_follow_deleted_tasks();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_workflows'::regclass AND tgname = 'horsies_workflow_insert') THEN
        CREATE TRIGGER horsies_workflow_insert
        AFTER INSERT ON horsies_workflows
        FOR EACH ROW
        EXECUTE FUNCTION horsies_notify_workflow_changes();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_workflows'::regclass AND tgname = 'horsies_workflow_update') THEN
        CREATE TRIGGER horsies_workflow_update
        AFTER UPDATE OF status ON horsies_workflows
        FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status)
        EXECUTE FUNCTION horsies_notify_workflow_changes();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_workers'::regclass AND tgname = 'horsies_worker_names_delete') THEN
        CREATE TRIGGER horsies_worker_names_delete
        AFTER DELETE ON horsies_workers
        REFERENCING OLD TABLE AS old_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_keep_known_names();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_worker_states'::regclass AND tgname = 'horsies_worker_state_insert') THEN
        CREATE TRIGGER horsies_worker_state_insert
        AFTER INSERT ON horsies_worker_states
        FOR EACH ROW
        EXECUTE FUNCTION horsies_monitor_worker_states();
    END IF;
END;
$$;
