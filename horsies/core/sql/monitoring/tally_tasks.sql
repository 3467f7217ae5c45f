-- Tasks of `source` by state and by the value of each of `facets` (M-45), and whether there may be more than these. Looks at
-- `look` tasks at most, along the index that `walk` names; NULL means all of them.
SELECT f.facet, CASE f.facet WHEN 'task_name' THEN j.task_name WHEN 'queue' THEN j.queue_name
                             WHEN 'worker' THEN j.claimed_by_worker_id WHEN 'error_code' THEN j.error_code END AS value,
       j.status, count(*) FILTER (WHERE j.is_match), COALESCE(bool_or(j.is_last), FALSE)
FROM (
    SELECT task_name, queue_name, claimed_by_worker_id, error_code, status,
           row_number() OVER () = %(look)s::bigint AS is_last, COALESCE(
           (%(task_names)s::text[] IS NULL OR task_name = ANY(%(task_names)s::text[]))
           AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))
           AND (%(workers)s::text[] IS NULL OR claimed_by_worker_id = ANY(%(workers)s::text[]))
           AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))
           AND (%(codes)s::text[] IS NULL OR error_code = ANY(%(codes)s::text[]))
           AND (%(codes_other_than)s::text[] IS NULL OR (error_code IS NOT NULL AND error_code <> ALL(%(codes_other_than)s::text[])))
           AND (NOT %(retried_only)s OR retry_count > 0)
           AND (NOT %(only_waiting)s OR is_waiting) AND (NOT %(only_in_flight)s OR claimed)
           AND (NOT %(only_ended)s OR ended_at IS NOT NULL), FALSE) AS is_match
    FROM (
        SELECT task_name, queue_name, claimed_by_worker_id, status, error_code, retry_count, is_waiting, claimed, ended_at
        FROM horsies_tasks
        WHERE (%(source)s::text <> 'waiting' OR (is_waiting AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))))
          AND (%(source)s::text <> 'in_flight' OR (claimed AND (%(workers)s::text[] IS NULL
               OR claimed_by_worker_id = ANY(%(workers)s::text[]))))
          AND (%(source)s::text <> 'ended' OR ended_at IS NOT NULL)
          AND (%(source)s::text <> 'coded' OR (error_code IS NOT NULL AND (%(codes)s::text[] IS NULL
               OR error_code = ANY(%(codes)s::text[]))))
        ORDER BY CASE WHEN %(walk)s::text = 'claim_order' THEN queue_name END DESC,
                 CASE WHEN %(walk)s::text = 'owner' THEN claimed_by_worker_id END,
                 CASE WHEN %(walk)s::text = 'ended_at' THEN ended_at END DESC,
                 CASE WHEN %(walk)s::text = 'code' THEN error_code END,
                 CASE WHEN %(walk)s::text = 'id' THEN id END DESC
        LIMIT %(look)s
    ) looked
) j CROSS JOIN unnest(%(facets)s::text[]) AS f(facet)
WHERE j.is_match OR j.is_last
GROUP BY 1, 2, 3
