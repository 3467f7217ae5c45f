-- Whether a source has at most `few` tasks: then it is read as a whole, whatever the order. The order here is that of the
-- source's index, so that no plan reads another one.
SELECT count(*) <= %(few)s FROM (
    SELECT FROM horsies_tasks
    WHERE (%(source)s::text <> 'waiting' OR (is_waiting AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))))
      AND (%(source)s::text <> 'coded' OR (error_code IS NOT NULL AND (%(codes)s::text[] IS NULL
           OR error_code = ANY(%(codes)s::text[]))))
    ORDER BY CASE WHEN %(source)s::text = 'waiting' THEN queue_name END DESC,
             CASE WHEN %(source)s::text = 'coded' THEN error_code END DESC, CASE WHEN %(source)s::text = 'all' THEN id END DESC
    LIMIT %(few)s + 1
) found
