-- No table changes. The triggers for new and moved tasks become one for each statement instead of one for each row and two for
-- each statement, which cost more; `install` makes it. It also leaves the keys to tasks unchecked where the server can
-- (schema/unchecked_keys.sql). All of this changes the catalog alone.
DROP TRIGGER IF EXISTS horsies_task_notify_trigger ON horsies_tasks;
DROP TRIGGER IF EXISTS horsies_task_monitor_insert ON horsies_tasks;
DROP TRIGGER IF EXISTS horsies_task_monitor_update ON horsies_tasks;
DROP TRIGGER IF EXISTS horsies_task_load_update ON horsies_tasks;
DROP FUNCTION IF EXISTS horsies_monitor_new_tasks(), horsies_monitor_moved_tasks(), horsies_count_moved_tasks();
