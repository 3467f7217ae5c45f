-- The same for tasks that wait (X-13): everything that they wait for comes nearer by so much. Tasks in flight are left
-- alone, because the worker that holds them lives in the present.
WITH locked AS (
    SELECT id FROM horsies_tasks WHERE is_waiting ORDER BY id FOR UPDATE
)
UPDATE horsies_tasks t
SET enqueued_at = t.enqueued_at - make_interval(secs => %(seconds)s),
    next_retry_at = t.next_retry_at - make_interval(secs => %(seconds)s),
    good_until = t.good_until - make_interval(secs => %(seconds)s)
FROM locked l WHERE t.id = l.id
