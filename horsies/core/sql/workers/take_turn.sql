-- Whose turn it is to make a pass that one worker makes for its whole team (R-15). Answers how many seconds ago another did,
-- if that is less than `every`. Otherwise it is ours, which our row says from now on. Two may take it at the same moment: then
-- both make the pass, which costs time only. A time in the future, as after the clock was set back, counts for nothing.
WITH newest AS (
    SELECT min(age) AS age FROM (
        SELECT extract(epoch FROM now())::float8
                   - jsonb_path_query_first(metadata, '$.reaped_at ? (@ >= 0 && @ <= 1e11)')::float8 AS age
        FROM horsies_workers WHERE metadata ->> 'team' = %(team)s
    ) marks WHERE age >= 0 AND age < %(every)s::float8
), taken AS (
    UPDATE horsies_workers SET metadata = metadata || jsonb_build_object('reaped_at', extract(epoch FROM now()))
    WHERE worker_id = %(worker_id)s AND (SELECT age FROM newest) IS NULL
)
SELECT age FROM newest
