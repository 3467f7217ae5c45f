-- PENDING → CLAIMED (L-05) or RUNNING (L-05a), for all served queues in one statement: the queues in their order, in each the
-- due tasks by priority, age and id (W-22), as many as the budgets allow (W-24).
-- What is in flight is asked for only with `counting`, under the claim locks, which a statement before this one has taken
-- (W-23). Beyond `strict`, the free slots, rows come only from queues of whose free part half is left (W-25a).
-- The first `whole` sync tasks take a child each and so fill `concurrency` slots of the `room` (W-30a).
-- A sync task that found no idle child for ten seconds lets no async one pass it for the next ten, so that a child becomes
-- idle, and so on in turn: neither kind starves, and long async tasks do not stop the others for good. With `is_sync_turn`
-- every such task lets none pass.
-- Tasks are taken as long as those before them have fewer than `free_bytes` of arguments (W-25b): so the limit is passed by
-- one task at most, and there is always a first one. The size of a value that is stored apart is known without reading it.
-- A row beyond `budget` was locked for nothing; whoever skipped it meanwhile looks again after a pause.
-- What lies between `--{ counted` and `--}` is there only with `counting`, and behind `--{ !counted` only without it;
-- `concurrent` is for children that run more than one task at once.
-- With `starting`, tasks for which children have `seats` are RUNNING at once (W-21b); a seat is the number of its child. The
-- first `free` seats are in idle children, for whatever comes; behind them only tasks that are short, like all before them,
-- find a child that is ready for them (W-25a). Tasks that have a history or a node are started by a statement of their own.
-- With `leaving`, tasks of other names than the worker's are left to others (O-31): of each priority only the part of the line is
-- read that `line` has looked at.
WITH
--{ counted
queues AS (
    SELECT * FROM unnest(%(queues)s::text[], %(takes)s::int[], %(caps)s::int[]) WITH ORDINALITY AS q(name, take, cap, place)
), load AS (
    SELECT *, CASE WHEN cap IS NOT NULL
                   THEN (SELECT COALESCE(CASE WHEN %(hard)s THEN f.held ELSE f.running END, 2147483647) FROM horsies_in_flight(name) f) END AS counted
    FROM queues
), room AS (
    SELECT name, place, CASE WHEN cap IS NULL THEN take ELSE GREATEST(0, LEAST(
               take, GREATEST(LEAST(%(strict)s, cap - counted), (cap - counted) / 2))) END AS take, (cap - counted) / 2 AS easy
    FROM load
),
--}
--{ !counted
room AS (
    SELECT * FROM unnest(%(queues)s::text[], %(takes)s::int[]) WITH ORDINALITY AS q(name, take, place)
),
--}
due AS (
    SELECT t.*, r.place
           --{ counted
           , COALESCE(r.take <= r.easy, TRUE) AS is_easy
           --}
           --{ concurrent
           , t.task_name = ANY(%(async_names)s::text[]) AS is_async
           --}
    FROM (SELECT * FROM room WHERE take > 0 ORDER BY place) r CROSS JOIN LATERAL (
        -- From priority to priority: one walk through the queue would pass every task that is not due yet. Backwards,
        -- because claimed tasks leave their dead entries in front; who waits is at the back.
        --{ !leaving
        WITH RECURSIVE level AS (
            (SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = r.name
             ORDER BY queue_name DESC, priority DESC LIMIT 1)
            UNION ALL
            SELECT n.priority FROM level l CROSS JOIN LATERAL (
                SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = r.name AND priority < l.priority
                ORDER BY queue_name DESC, priority DESC LIMIT 1
            ) n
        )
        --}
        SELECT c.* FROM (
            --{ !leaving
            SELECT priority FROM level ORDER BY priority
            --}
            --{ leaving
            SELECT * FROM unnest(%(in_queues)s::text[], %(in_priorities)s::int[], %(afters)s::timestamptz[], %(after_ids)s::text[],
                                 %(untils)s::timestamptz[], %(until_ids)s::text[])
                          AS p(queue, priority, after, after_id, until, until_id) WHERE queue = r.name ORDER BY priority
            --}
        ) l CROSS JOIN LATERAL (
            SELECT ctid AS at, id, task_name, priority, enqueued_at,
                   --{ starting
                   workflow_id IS NULL AND retry_count = 0 AND start_failures = 0 AND failed_reason IS NULL AS is_plain,
                   --}
                   COALESCE(octet_length(args), 0) + COALESCE(octet_length(kwargs), 0) AS size FROM horsies_tasks p
            WHERE is_waiting AND NOT is_held AND queue_name = r.name AND priority = l.priority AND enqueued_at <= statement_timestamp()
              AND (next_retry_at IS NULL OR next_retry_at <= statement_timestamp())
              AND (good_until IS NULL OR good_until > statement_timestamp())
              --{ leaving
              AND task_name = ANY(%(names_here)s::text[])
              AND (enqueued_at, id) > (l.after, l.after_id) AND (enqueued_at, id) <= (l.until, l.until_id)
              --}
              -- The truth: `is_held` may be behind (R-39). As a value: EXISTS could be planned as a hash of every open workflow.
              AND (workflow_id IS NULL
                   OR (SELECT w.status FROM horsies_workflows w WHERE w.id = p.workflow_id) IN ('PENDING', 'RUNNING'))
            ORDER BY enqueued_at, id FOR UPDATE SKIP LOCKED
        ) c LIMIT r.take
    ) t
    --{ !concurrent
    -- Queue after queue until the budget is spent; who counts sync tasks may have to leave some out, and looks further.
    LIMIT %(budget)s::int
    --}
),
--{ concurrent
kinds AS (
    SELECT *, count(*) FILTER (WHERE NOT is_async) OVER (ORDER BY place, priority, enqueued_at, id) AS nth_sync
    FROM due
), turns AS (
    SELECT *, bool_or(NOT is_async AND nth_sync > %(sync_budget)s
                      AND (%(is_sync_turn)s OR extract(epoch FROM statement_timestamp() - enqueued_at)::bigint / 10 %% 2 = 1))
                  OVER (ORDER BY place, priority, enqueued_at, id) AS is_behind
    FROM kinds
), weighed AS (
    SELECT *, sum(CASE WHEN is_async OR nth_sync > %(whole)s THEN 1 ELSE %(concurrency)s END)
                  OVER (ORDER BY place, priority, enqueued_at, id) AS filled
    FROM turns WHERE CASE WHEN is_async THEN NOT is_behind ELSE nth_sync <= %(sync_budget)s END
), fitting AS (
    SELECT * FROM weighed WHERE filled <= %(room)s
),
--}
--{ !concurrent
-- One task at a time in each child: all weigh the same, and nothing needs to be counted.
fitting AS (
    SELECT * FROM due
),
--}
ranked AS (
    SELECT *, row_number() OVER line AS nth, sum(size) OVER line - size AS before
           --{ starting
           , bool_and(task_name = ANY(%(short_names)s::text[])) OVER line AS are_short
           --}
    FROM fitting
    WINDOW line AS (ORDER BY place, priority, enqueued_at, id ROWS UNBOUNDED PRECEDING)
), chosen AS (
    SELECT at, place, size
           --{ starting
           , CASE WHEN is_plain AND (nth <= %(free)s OR are_short) THEN (%(seats)s::int[])[nth::int] END AS child
           --}
    FROM ranked
    WHERE before < %(free_bytes)s
          --{ counted
          AND (is_easy OR nth <= %(strict)s)
          --}
    ORDER BY place, priority, enqueued_at, id
    --{ !counted
    LIMIT %(budget)s::int
    --}
    --{ counted
    LIMIT CASE WHEN %(cluster_cap)s::int IS NULL THEN %(budget)s ELSE GREATEST(0, LEAST(%(budget)s, (
        SELECT GREATEST(LEAST(%(strict)s, c.cap - f.held), (c.cap - f.held) / 2)
        FROM (SELECT COALESCE(held, 2147483647) AS held FROM horsies_in_flight('*')) f
            CROSS JOIN (SELECT %(cluster_cap)s::int AS cap) c))) END
    --}
)
UPDATE horsies_tasks t
--{ !starting
SET status = 'CLAIMED',
--}
--{ starting
SET status = CASE WHEN c.child IS NULL THEN 'CLAIMED' ELSE 'RUNNING' END,
    started_at = CASE WHEN c.child IS NOT NULL THEN statement_timestamp() END,
    worker_hostname = CASE WHEN c.child IS NOT NULL THEN %(hostname)s END,
    worker_pid = (%(pids)s::int[])[c.child], worker_process_name = (%(names)s::text[])[c.child],
--}
    claimed = TRUE, claimed_at = statement_timestamp(), claimed_by_worker_id = %(worker_id)s,
    claim_expires_at = statement_timestamp() + %(lease)s::interval, claim_seq = t.claim_seq + 1, recovery_enrolled = %(enrolled)s,
    next_retry_at = NULL, updated_at = statement_timestamp()
FROM chosen c
WHERE t.ctid = c.at  -- a row that moved between the look and the lock waits for the next look
RETURNING c.place, t.priority, t.enqueued_at, t.id, t.claim_seq, t.task_name, t.queue_name, t.args, t.kwargs,
          t.task_options, t.retry_count, t.max_retries, t.good_until IS NOT NULL, t.workflow_id,
          t.start_failures, CASE WHEN t.start_failures > 0 THEN t.failed_reason END,
          -- Of what was recovered or tried before: how many workers have died with it (R-58).
          CASE WHEN %(enrolled)s AND (t.failed_reason IS NOT NULL OR t.retry_count > 0) THEN (
              SELECT count(*) FROM horsies_task_attempts a WHERE a.task_id = t.id AND a.outcome = 'WORKER_FAILURE') ELSE 0 END, c.size,
          --{ starting
          c.child,
          (SELECT set_config('synchronous_commit', 'off', TRUE) WHERE NOT EXISTS (SELECT FROM chosen WHERE child IS NOT NULL))
          --}
          --{ !starting
          NULL,
          -- A lost claim costs nothing (the fence), so its commit need not wait for the disk, if it is all there is to commit.
          (SELECT set_config('synchronous_commit', 'off', TRUE) WHERE %(alone)s)
          --}
