-- Workflows with a row outside the limits (D-14), of their own or of a node. Reads both tables, so it is asked only after a
-- statement that chooses its own rows has failed.
SELECT id FROM horsies_workflows
WHERE NOT (LEAST(good_until, sent_at, created_at, updated_at, started_at, paused_at, completed_at) >= '0001-01-01Z'
    AND GREATEST(good_until, sent_at, created_at, updated_at, started_at, paused_at, completed_at) < '10000-01-01Z'
    AND LEAST(depth, open_nodes) >= 0 AND GREATEST(depth, open_nodes) <= 1000000000)
UNION
SELECT workflow_id FROM horsies_workflow_tasks
WHERE NOT (LEAST(good_until, created_at, updated_at, ready_at, enqueued_at, started_at, completed_at) >= '0001-01-01Z'
    AND GREATEST(good_until, created_at, updated_at, ready_at, enqueued_at, started_at, completed_at) < '10000-01-01Z'
    AND LEAST(deps_total, deps_completed, deps_failed, deps_skipped) >= 0
    AND GREATEST(deps_total, deps_completed, deps_failed, deps_skipped) <= 1000000000)
LIMIT %(most)s
