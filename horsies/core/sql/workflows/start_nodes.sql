-- CLAIMED → RUNNING (L-09) for tasks of workflows, and ENQUEUED → RUNNING for their nodes (F-21), in one statement. The nodes
-- are locked before their tasks (D-63): the batch is sorted, which needs all of them. A node that another process has locked
-- is left out, because waiting for it would hold up every other start; a statement that never waits for nodes does not need to
-- lock them in an order. Returns what decides whether they may start (L-25), the deadline first, and whether they have started.
-- A node whose task is started again, after a retry or a recovery, is RUNNING already and stays RUNNING.
WITH nodes AS (
    SELECT n.task_id, n.status,
           -- These are scalar subqueries, because a join could be planned as a hash of every workflow and every task.
           (SELECT w.status FROM horsies_workflows w WHERE w.id = n.workflow_id) AS workflow,
           (SELECT COALESCE(t.good_until <= statement_timestamp(), FALSE) FROM horsies_tasks t WHERE t.id = n.task_id) AS is_overdue
    FROM unnest(%(ids)s::text[]) AS s(id) CROSS JOIN LATERAL (
        SELECT task_id, status, workflow_id FROM horsies_workflow_tasks WHERE task_id = s.id FOR NO KEY UPDATE SKIP LOCKED
    ) n
), started AS (
    UPDATE horsies_tasks t
    SET status = 'RUNNING', started_at = statement_timestamp(), worker_pid = w.pid, worker_process_name = w.name,
        worker_hostname = %(hostname)s, updated_at = statement_timestamp()
    FROM (
        SELECT w.* FROM unnest(%(ids)s::text[], %(claims)s::int[], %(pids)s::int[], %(names)s::text[]) AS w(id, claim_seq, pid, name)
        JOIN nodes n ON n.task_id = w.id
        WHERE n.is_overdue OR n.workflow IN ('PENDING', 'RUNNING')
        ORDER BY w.id
    ) w
    WHERE t.id = w.id AND t.id = ANY(%(ids)s::text[]) AND t.claim_seq = w.claim_seq AND t.status = 'CLAIMED'
      AND t.claimed_by_worker_id = %(worker_id)s AND (t.good_until IS NULL OR t.good_until > statement_timestamp())
    RETURNING t.id
), marked AS (
    -- By the task again, not by where the row was: it may have moved between the look and the lock.
    UPDATE horsies_workflow_tasks n SET status = 'RUNNING', started_at = statement_timestamp(), updated_at = statement_timestamp()
    FROM started s WHERE n.task_id = s.id AND n.task_id = ANY(%(ids)s::text[]) AND n.status || '' = 'ENQUEUED'
)
SELECT n.task_id, n.status, n.workflow, n.is_overdue, (SELECT s.id FROM started s WHERE s.id = n.task_id) IS NOT NULL
FROM nodes n
