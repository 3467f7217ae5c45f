-- Writes every change of workflows that a step has decided on, in one statement (F-20). `opened` says that a FAILED or PAUSED
-- workflow goes on after a retry of nodes (F-94): its result, error and time of end are cleared. The rows are already locked. A
-- count that is outside the limits stays outside, so that the row is refused and mended (D-14). It fails as `move_nodes.sql` does
-- if a workflow is not in the state that it was locked in.
WITH moved AS (
    UPDATE horsies_workflows w
    SET status = c.status, open_nodes = GREATEST(w.open_nodes + c.open, LEAST(w.open_nodes, 0)),
        result = CASE WHEN c.opened THEN c.result ELSE COALESCE(c.result, w.result) END,
        error = CASE WHEN c.opened THEN c.error ELSE COALESCE(c.error, w.error) END,
        error_code = CASE WHEN c.opened THEN c.error_code ELSE COALESCE(c.error_code, w.error_code) END,
        paused_at = CASE WHEN c.status = 'PAUSED' AND w.status <> 'PAUSED' THEN now() ELSE w.paused_at END,
        -- The step that has opened it may also end it again.
        completed_at = CASE WHEN c.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND (w.status <> c.status OR c.opened) THEN now()
                            WHEN c.opened THEN NULL ELSE w.completed_at END,
        updated_at = now()
    FROM (
        SELECT c.*, known.at
        FROM unnest(%(ids)s::text[], %(was)s::text[], %(states)s::text[], %(opens)s::int[], %(results)s::text[], %(errors)s::text[],
                    %(codes)s::text[], %(opened)s::bool[]) AS c(id, was, status, open, result, error, error_code, opened)
        CROSS JOIN LATERAL (SELECT ctid AS at, status FROM horsies_workflows WHERE id = c.id OFFSET 0) known
        WHERE known.status = c.was
    ) c
    WHERE w.ctid = c.at
    RETURNING w.id
)
SELECT count(*), CASE WHEN count(*) <> %(count)s::int THEN current_setting('horsies.workflows_are_not_as_they_were_locked') END FROM moved
