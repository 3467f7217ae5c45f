-- Deletes statistics older than `age` (R-80), the oldest of each span first, `most` rows of each at most.
DELETE FROM horsies_rollup WHERE ctid = ANY(ARRAY(
    SELECT o.at FROM unnest(%(spans)s::int[]) AS s(span) CROSS JOIN LATERAL (
        SELECT ctid AS at FROM horsies_rollup WHERE span = s.span AND start_at < now() - %(age)s::interval
        ORDER BY span, start_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) o LIMIT %(most)s
)) RETURNING TRUE
