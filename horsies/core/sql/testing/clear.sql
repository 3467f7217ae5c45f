-- All tasks, workflows and schedules with everything that belongs to them, for a test that begins without any. The
-- counts of the queues follow by the triggers.
WITH schedules AS (DELETE FROM horsies_schedules), workflows AS (DELETE FROM horsies_workflows)
DELETE FROM horsies_tasks
