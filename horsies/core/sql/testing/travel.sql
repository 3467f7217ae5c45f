-- Lets so many seconds pass for a test (X-13): every instant that something waits for comes so much nearer. Tasks in
-- flight are left alone, because the worker that holds them lives in the present. Nothing changes its state here.
WITH waiting AS (
    UPDATE horsies_tasks
    SET enqueued_at = enqueued_at - make_interval(secs => %(seconds)s),
        next_retry_at = next_retry_at - make_interval(secs => %(seconds)s),
        good_until = good_until - make_interval(secs => %(seconds)s)
    WHERE is_waiting
    RETURNING id
), flows AS (
    UPDATE horsies_workflows SET good_until = good_until - make_interval(secs => %(seconds)s)
    WHERE good_until IS NOT NULL AND status IN ('PENDING', 'RUNNING', 'PAUSED')
), nodes AS (
    UPDATE horsies_workflow_tasks SET good_until = good_until - make_interval(secs => %(seconds)s)
    WHERE good_until IS NOT NULL AND status IN ('PENDING', 'READY')
)
SELECT count(*) FROM waiting
