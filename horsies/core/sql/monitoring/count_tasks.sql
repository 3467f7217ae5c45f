-- How many tasks of `source` a filter leaves, up to `most`, and whether there may be more (M-46). Looks at `look` tasks at most,
-- along the index that `walk` names; that of waiting tasks from its end, because claimed tasks leave their dead entries in
-- front. NULL for `most` and `look` counts all of them.
SELECT count(*) FILTER (WHERE is_match), COALESCE(bool_or(is_last), FALSE) OR COALESCE(count(*) >= %(most)s::bigint, FALSE)
FROM (
    SELECT * FROM (
    SELECT row_number() OVER () = %(look)s::bigint AS is_last, COALESCE(
           (%(task_names)s::text[] IS NULL OR task_name = ANY(%(task_names)s::text[]))
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
           AND (NOT %(uncoded_only)s OR error_code IS NULL), FALSE) AS is_match
    FROM (
        SELECT task_name, queue_name, claimed_by_worker_id, status, error_code, retry_count, is_waiting, claimed, ended_at, workflow_id,
               sent_at, id
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
        ORDER BY CASE WHEN %(walk)s::text = 'claim_order' THEN queue_name END DESC,
                 CASE WHEN %(walk)s::text = 'owner' THEN claimed_by_worker_id END,
                 CASE WHEN %(walk)s::text = 'ended_at' THEN ended_at END DESC,
                 CASE WHEN %(walk)s::text = 'code' THEN error_code END,
                 CASE WHEN %(walk)s::text = 'id' THEN id END DESC
        LIMIT %(look)s
    ) looked
    ) judged WHERE is_match OR is_last LIMIT %(most)s::bigint
) counted
