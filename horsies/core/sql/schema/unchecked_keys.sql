-- The keys from attempts and nodes to their tasks are not checked where a server can leave a key unchecked (PostgreSQL 18).
-- Whoever writes an attempt updates its task in the same statement, and whoever gives a node a task has just inserted it: the
-- check, row by row, would find again what is so. A trigger does what the keys did for deleted tasks (see triggers.sql).
-- This changes the catalog alone, and reads no rows. As text, because an older server would not understand the command.
DO $$
DECLARE it record;
BEGIN
    FOR it IN
        SELECT c.conrelid::regclass AS name, c.conname FROM pg_constraint c
        WHERE c.conrelid IN ('horsies_workflow_tasks'::regclass, 'horsies_task_attempts'::regclass)
          AND c.confrelid = 'horsies_tasks'::regclass AND c.contype = 'f'
          AND to_jsonb(c) ->> 'conenforced' = 'true'  -- as JSON: an older server does not have the column
        ORDER BY c.conname DESC  -- in the order in which others lock the tables (D-63)
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER CONSTRAINT %I NOT ENFORCED', it.name, it.conname);
    END LOOP;
END $$
