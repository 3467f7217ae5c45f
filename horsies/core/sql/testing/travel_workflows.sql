-- Lets so many seconds pass for a test (X-13): the deadlines of open workflows come nearer. Their state does not change.
WITH locked AS (
    SELECT id FROM horsies_workflows
    WHERE good_until IS NOT NULL AND status IN ('PENDING', 'RUNNING', 'PAUSED') ORDER BY depth, id FOR UPDATE
)
UPDATE horsies_workflows w SET good_until = w.good_until - make_interval(secs => %(seconds)s)
FROM locked l WHERE w.id = l.id
