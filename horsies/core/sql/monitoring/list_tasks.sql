-- A page of tasks (M-45, M-46). Looks at `look` tasks of `source` at most, in the order `walk`, which an index has: it is the
-- order of the page, or any if they are so few that all of them are read. The statement is planned for its values: what
-- filters nothing vanishes, one source and one order are left, and where both orders are the same the page ends the walk.
SELECT id AS task_id, task_name, queue_name, priority, status, sent_at, enqueued_at, claimed_at, started_at, ended_at,
       next_retry_at, good_until, retry_count, max_retries, error_code, claimed_by_worker_id AS worker_id, worker_hostname,
       worker_pid, workflow_id
FROM (
    SELECT id, task_name, queue_name, priority, status, sent_at, enqueued_at, claimed_at, started_at, ended_at,
           next_retry_at, good_until, retry_count, max_retries, error_code, claimed_by_worker_id, worker_hostname,
           worker_pid, workflow_id, is_waiting, is_held, claimed,
           CASE %(sort_by)s::text WHEN 'started_at' THEN COALESCE(started_at, claimed_at) WHEN 'ended_at' THEN ended_at
                                  WHEN 'sent_at' THEN sent_at END AS moment
    FROM horsies_tasks
    WHERE (%(source)s::text <> 'waiting' OR (is_waiting AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))))
      AND (%(source)s::text <> 'in_flight' OR (claimed AND (%(workers)s::text[] IS NULL
           OR claimed_by_worker_id = ANY(%(workers)s::text[]))))
      AND (%(source)s::text <> 'ended' OR ended_at IS NOT NULL)
      AND (%(source)s::text <> 'ids' OR id = ANY(%(ids)s::text[]))
      AND (%(id_from)s::text IS NULL OR %(walk)s::text <> 'id' OR id >= %(id_from)s::text)
      AND (%(id_to)s::text IS NULL OR %(walk)s::text <> 'id' OR id <= %(id_to)s::text)
      AND (%(source)s::text <> 'coded' OR (error_code IS NOT NULL AND (%(codes)s::text[] IS NULL
           OR error_code = ANY(%(codes)s::text[]))))
      AND CASE WHEN %(after_id)s::text IS NULL OR %(walk)s::text <> %(sort_by)s::text THEN TRUE
               WHEN %(walk)s::text = 'id' AND %(descending)s THEN id < %(after_id)s::text
               WHEN %(walk)s::text = 'id' THEN id > %(after_id)s::text
               -- An empty id stands before all tasks that ended at that moment.
               WHEN %(walk)s::text = 'ended_at' AND %(after_id)s::text = '' THEN CASE WHEN %(descending)s
                   THEN ended_at <= %(after_time)s::timestamptz ELSE ended_at >= %(after_time)s::timestamptz END
               WHEN %(walk)s::text = 'ended_at' AND %(descending)s
                   THEN (ended_at, id) < (%(after_time)s::timestamptz, %(after_id)s::text)
               WHEN %(walk)s::text = 'ended_at' THEN (ended_at, id) > (%(after_time)s::timestamptz, %(after_id)s::text)
               WHEN %(descending)s THEN (queue_name, priority, is_held, enqueued_at, id)
                   < (%(after_queue)s::text, %(after_priority)s::int,
                      (SELECT COALESCE(bool_or(c.is_held), FALSE) FROM horsies_tasks c WHERE c.id = %(after_id)s::text),
                      %(after_time)s::timestamptz, %(after_id)s::text)
               ELSE (queue_name, priority, is_held, enqueued_at, id)
                   > (%(after_queue)s::text, %(after_priority)s::int,
                      (SELECT COALESCE(bool_or(c.is_held), FALSE) FROM horsies_tasks c WHERE c.id = %(after_id)s::text),
                      %(after_time)s::timestamptz, %(after_id)s::text) END
    ORDER BY CASE WHEN %(walk)s::text = 'claim_order' AND NOT %(descending)s THEN queue_name END,
             CASE WHEN %(walk)s::text = 'claim_order' AND NOT %(descending)s THEN priority END,
             CASE WHEN %(walk)s::text = 'claim_order' AND NOT %(descending)s THEN is_held END,
             CASE WHEN %(walk)s::text = 'claim_order' AND NOT %(descending)s THEN enqueued_at END,
             CASE WHEN %(walk)s::text = 'claim_order' AND %(descending)s THEN queue_name END DESC,
             CASE WHEN %(walk)s::text = 'claim_order' AND %(descending)s THEN priority END DESC,
             CASE WHEN %(walk)s::text = 'claim_order' AND %(descending)s THEN is_held END DESC,
             CASE WHEN %(walk)s::text = 'claim_order' AND %(descending)s THEN enqueued_at END DESC,
             CASE WHEN %(walk)s::text = 'ended_at' AND NOT %(descending)s THEN ended_at END,
             CASE WHEN %(walk)s::text = 'ended_at' AND %(descending)s THEN ended_at END DESC,
             CASE WHEN %(walk)s::text IN ('id', 'claim_order') AND NOT %(descending)s THEN id END,
             CASE WHEN %(walk)s::text IN ('id', 'claim_order') AND %(descending)s THEN id END DESC,
             CASE WHEN %(walk)s::text = 'owner' THEN claimed_by_worker_id END,
             CASE WHEN %(walk)s::text = 'code' THEN error_code END
    LIMIT %(look)s
) looked
WHERE (%(task_names)s::text[] IS NULL OR task_name = ANY(%(task_names)s::text[]))
  AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))
  AND (%(workers)s::text[] IS NULL OR claimed_by_worker_id = ANY(%(workers)s::text[]))
  AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))
  AND (%(codes)s::text[] IS NULL OR error_code = ANY(%(codes)s::text[]))
  AND (%(codes_other_than)s::text[] IS NULL OR (error_code IS NOT NULL AND error_code <> ALL(%(codes_other_than)s::text[])))
  AND (NOT %(retried_only)s OR retry_count > 0) AND (NOT %(plain_only)s OR workflow_id IS NULL)
  AND (NOT %(only_waiting)s OR is_waiting) AND (NOT %(only_in_flight)s OR claimed)
  AND (NOT %(only_ended)s OR ended_at IS NOT NULL)
  AND (%(sent_after)s::timestamptz IS NULL OR sent_at >= %(sent_after)s::timestamptz)
  AND (%(sent_before)s::timestamptz IS NULL OR sent_at < %(sent_before)s::timestamptz)
  AND (%(id_prefix)s::text IS NULL OR starts_with(id, %(id_prefix)s::text))
  AND (%(id_suffix)s::text IS NULL OR right(id, length(%(id_suffix)s::text)) = %(id_suffix)s::text)
  AND (NOT %(uncoded_only)s OR error_code IS NULL)
  -- After the cursor, if the walk does not begin there.
  AND CASE WHEN %(after_id)s::text IS NULL OR %(walk)s::text = %(sort_by)s::text THEN TRUE
           WHEN %(sort_by)s::text = 'id' THEN CASE WHEN %(descending)s THEN id < %(after_id)s::text
                                                   ELSE id > %(after_id)s::text END
           WHEN %(descending)s THEN (moment, id) < (%(after_time)s::timestamptz, %(after_id)s::text)
           ELSE (moment, id) > (%(after_time)s::timestamptz, %(after_id)s::text) END
ORDER BY CASE WHEN %(sort_by)s::text = 'claim_order' AND NOT %(descending)s THEN queue_name END,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND NOT %(descending)s THEN priority END,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND NOT %(descending)s THEN is_held END,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND NOT %(descending)s THEN enqueued_at END,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND %(descending)s THEN queue_name END DESC,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND %(descending)s THEN priority END DESC,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND %(descending)s THEN is_held END DESC,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND %(descending)s THEN enqueued_at END DESC,
         CASE WHEN %(sort_by)s::text = 'started_at' AND NOT %(descending)s THEN COALESCE(started_at, claimed_at) END,
         CASE WHEN %(sort_by)s::text = 'started_at' AND %(descending)s THEN COALESCE(started_at, claimed_at) END DESC,
         CASE WHEN %(sort_by)s::text = 'ended_at' AND NOT %(descending)s THEN ended_at END,
         CASE WHEN %(sort_by)s::text = 'ended_at' AND %(descending)s THEN ended_at END DESC,
         CASE WHEN %(sort_by)s::text = 'sent_at' AND NOT %(descending)s THEN sent_at END,
         CASE WHEN %(sort_by)s::text = 'sent_at' AND %(descending)s THEN sent_at END DESC,
         CASE WHEN NOT %(descending)s THEN id END, CASE WHEN %(descending)s THEN id END DESC
OFFSET %(offset)s LIMIT %(limit)s
