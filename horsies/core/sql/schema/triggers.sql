-- Each trigger is created only if it is missing: to replace one would lock its table for all (and PostgreSQL 13
-- cannot). A trigger whose shape changes is dropped by a migration first.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_notify_trigger') THEN
        CREATE TRIGGER horsies_task_notify_trigger
        AFTER INSERT OR UPDATE ON horsies_tasks
        FOR EACH ROW
        -- The function would do nothing for a claim or a start, and a call costs more than this condition.
        WHEN (NEW.status NOT IN ('CLAIMED', 'RUNNING'))
        EXECUTE FUNCTION horsies_notify_task_changes();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_monitor_insert') THEN
        CREATE TRIGGER horsies_task_monitor_insert
        AFTER INSERT ON horsies_tasks
        REFERENCING NEW TABLE AS new_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_monitor_new_tasks();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_monitor_update') THEN
        CREATE TRIGGER horsies_task_monitor_update
        AFTER UPDATE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_monitor_moved_tasks();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_load_insert') THEN
        CREATE TRIGGER horsies_task_load_insert
        AFTER INSERT ON horsies_tasks
        FOR EACH ROW WHEN (NEW.claimed)
        EXECUTE FUNCTION horsies_count_new_task();
    END IF;

    IF NOT EXISTS (SELECT FROM pg_trigger
                   WHERE tgrelid = 'horsies_tasks'::regclass AND tgname = 'horsies_task_load_update') THEN
        CREATE TRIGGER horsies_task_load_update
        AFTER UPDATE ON horsies_tasks
        REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
        FOR EACH STATEMENT
        EXECUTE FUNCTION horsies_count_moved_tasks();
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
                   WHERE tgrelid = 'horsies_worker_states'::regclass AND tgname = 'horsies_worker_state_insert') THEN
        CREATE TRIGGER horsies_worker_state_insert
        AFTER INSERT ON horsies_worker_states
        FOR EACH ROW
        EXECUTE FUNCTION horsies_monitor_worker_states();
    END IF;
END;
$$;
