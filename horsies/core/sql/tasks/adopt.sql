-- Gives early tasks (D-59c) of these names what has been published about them: queue, priority, retries, options and flags, as far as
-- the sender has not said otherwise. They stay PENDING; those that have ended meanwhile get it too, so that they can be sent again with it.
-- At most `most` of them; their early rows go in the same statement, so that a crash loses nothing. A row of somebody else who adopts is passed over. The bell is rung as after a requeue (L-21): for what is due,
-- and for the first that is due later.
WITH found AS MATERIALIZED (
    SELECT e.task_id, COALESCE(e.queue_name, d.queue_name) AS queue_name, d.max_retries, d.task_options, d.flags,
           COALESCE(e.priority, (d.queues ->> e.queue_name)::int, CASE WHEN e.queue_name IS NULL THEN d.priority END, 100) AS priority
    FROM (SELECT t.* FROM unnest(%(names)s::text[]) AS n(name)
          CROSS JOIN LATERAL (SELECT * FROM horsies_task_defaults WHERE task_name = n.name OFFSET 0) t
          WHERE (SELECT TRUE FROM horsies_early_tasks LIMIT 1)) d  -- mostly there is none, and then no name is looked up
    CROSS JOIN LATERAL (
        SELECT * FROM horsies_early_tasks WHERE task_name = d.task_name
        ORDER BY task_name, task_id LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) e
    LIMIT %(most)s
), noted AS (
    DELETE FROM horsies_early_tasks WHERE task_id = ANY(ARRAY(SELECT task_id FROM found))
), locked AS (
    SELECT id FROM horsies_tasks
    WHERE id = ANY(ARRAY(SELECT task_id FROM found)) AND status IN ('PENDING', 'FAILED', 'CANCELLED', 'EXPIRED') AND claim_seq = 0
    ORDER BY id FOR UPDATE
), adopted AS (
    UPDATE horsies_tasks t
    -- Somebody may have moved it to another queue meanwhile (L-21a).
    SET queue_name = CASE WHEN t.queue_name = '(early)' THEN f.queue_name ELSE t.queue_name END,
        priority = CASE WHEN t.queue_name = '(early)' THEN f.priority ELSE t.priority END,
        max_retries = f.max_retries, task_options = CASE WHEN t.task_options IS NULL THEN f.task_options  -- it may name the task it repeats
            ELSE (COALESCE(NULLIF(f.task_options::jsonb, 'null'), '{}') || t.task_options::jsonb)::text END,
        flags = COALESCE(f.flags::jsonb, '{}'), updated_at = now()
    FROM found f WHERE t.id = f.task_id AND t.id = ANY(ARRAY(SELECT id FROM locked))
    RETURNING t.id, t.queue_name, t.enqueued_at, t.status
), rung AS MATERIALIZED (
    SELECT CASE WHEN enqueued_at <= now() OR row_number() OVER (PARTITION BY queue_name ORDER BY enqueued_at, id) = 1
                THEN horsies_ring(queue_name, id, NULL) END FROM adopted WHERE status = 'PENDING'
)
SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM rung)
