-- Before a migration: the tables in the order in which others lock them (D-63), so that nobody who is writing and the
-- migration wait for each other. Not for longer than a server takes to look for such a circle (one second).
SET LOCAL lock_timeout = '700ms';
LOCK TABLE horsies_workflows, horsies_workflow_tasks, horsies_tasks, horsies_task_attempts, horsies_waiting
    IN ACCESS EXCLUSIVE MODE;
SET LOCAL lock_timeout TO DEFAULT;
