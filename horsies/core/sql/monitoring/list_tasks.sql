-- A page of tasks (M-45). The statement is planned for its values: conditions that filter nothing vanish, and one sort
-- order is left. Either an index has this order, or the set is small enough to be sorted, as tasks in flight are
-- (started_at). Only sent_at reads everything that the filter leaves.
SELECT id AS task_id, task_name, queue_name, priority, status, sent_at, enqueued_at, claimed_at, started_at, ended_at,
       next_retry_at, good_until, retry_count, max_retries, error_code, claimed_by_worker_id AS worker_id, worker_hostname,
       worker_pid, workflow_id
FROM horsies_tasks
WHERE (%(task_names)s::text[] IS NULL OR task_name = ANY(%(task_names)s::text[]))
  AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))
  AND (%(workers)s::text[] IS NULL OR claimed_by_worker_id = ANY(%(workers)s::text[]))
  AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))
  AND (%(codes)s::text[] IS NULL OR error_code = ANY(%(codes)s::text[]))
  AND (%(codes_other_than)s::text[] IS NULL OR (error_code IS NOT NULL AND error_code <> ALL(%(codes_other_than)s::text[])))
  AND (NOT %(retried_only)s OR retry_count > 0)
  AND (NOT %(only_waiting)s OR is_waiting) AND (NOT %(only_in_flight)s OR claimed)
  AND (NOT %(only_ended)s OR ended_at IS NOT NULL)
ORDER BY CASE WHEN %(sort_by)s::text = 'claim_order' AND NOT %(descending)s THEN queue_name END,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND NOT %(descending)s THEN priority END,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND NOT %(descending)s THEN enqueued_at END,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND %(descending)s THEN queue_name END DESC,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND %(descending)s THEN priority END DESC,
         CASE WHEN %(sort_by)s::text = 'claim_order' AND %(descending)s THEN enqueued_at END DESC,
         CASE WHEN %(sort_by)s::text = 'started_at' AND NOT %(descending)s THEN COALESCE(started_at, claimed_at) END,
         CASE WHEN %(sort_by)s::text = 'started_at' AND %(descending)s THEN COALESCE(started_at, claimed_at) END DESC,
         CASE WHEN %(sort_by)s::text = 'ended_at' AND NOT %(descending)s THEN ended_at END,
         CASE WHEN %(sort_by)s::text = 'ended_at' AND %(descending)s THEN ended_at END DESC,
         CASE WHEN %(sort_by)s::text = 'sent_at' AND NOT %(descending)s THEN sent_at END,
         CASE WHEN %(sort_by)s::text = 'sent_at' AND %(descending)s THEN sent_at END DESC,
         CASE WHEN NOT %(descending)s THEN id END, CASE WHEN %(descending)s THEN id END DESC
OFFSET %(offset)s LIMIT %(limit)s
