-- Workflows that an error has paused, and those that failed within `window`: how many of each, and one of them, the last. At most
-- `most` paused ones, and so many of those that ended last, are looked at. Of failed ones only those without a parent count: that
-- a child failed shows in its parent.
SELECT status, count(*), (array_agg(id ORDER BY at DESC, id))[1], (array_agg(name ORDER BY at DESC, id))[1],
       (array_agg(error_code ORDER BY at DESC, id))[1]
FROM (
    (SELECT id, name, status, error_code, paused_at AS at, on_error = 'PAUSE' AND error IS NOT NULL AS is_meant
     FROM horsies_workflows WHERE status = 'PAUSED' ORDER BY status LIMIT %(most)s)
    UNION ALL
    (SELECT id, name, status, error_code, completed_at AS at, status = 'FAILED' AND parent_workflow_id IS NULL AS is_meant
     FROM horsies_workflows WHERE completed_at > now() - %(window)s::interval ORDER BY completed_at DESC LIMIT %(most)s)
) looked
WHERE is_meant
GROUP BY status
