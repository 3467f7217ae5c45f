-- How many tasks failed, expired, and failed with one of these codes, within `window` (D-59). Looks at the newest `most` rows.
SELECT COALESCE(sum(failed), 0)::bigint, COALESCE(sum(expired), 0)::bigint,
       COALESCE(sum(failed) FILTER (WHERE error_code = ANY(%(lost)s::text[])), 0)::bigint
FROM (
    SELECT failed, expired, error_code FROM horsies_rollup
    WHERE span = 60 AND start_at > now() - %(window)s::interval ORDER BY span DESC, start_at DESC LIMIT %(most)s
) looked
