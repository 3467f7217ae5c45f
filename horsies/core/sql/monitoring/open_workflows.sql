-- How many workflows have not ended, by state: at most `most` of each are counted.
SELECT s.status, n.count FROM unnest(ARRAY['PENDING', 'RUNNING', 'PAUSED']) AS s(status) CROSS JOIN LATERAL (
    SELECT count(*) FROM (SELECT FROM horsies_workflows WHERE status = s.status LIMIT %(most)s) found
) n
WHERE n.count > 0
