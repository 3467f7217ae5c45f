-- What people did, the newest first (M-49b). Looks at `look` entries at most: those about one target by its index, otherwise the
-- newest. The last one that was looked at comes too, so that the search can go on there.
WITH looked AS MATERIALIZED (
    -- Materialized, or the planner might walk through all entries in the order of the page to find those about the target.
    SELECT id, at, ended_at, actor, action, target_kind, target_ids, outcome, details FROM horsies_audit
    WHERE (%(after)s::bigint IS NULL OR id < %(after)s::bigint)
    --{ about
      AND target_ids @> ARRAY[%(target_id)s::text]
    --}
    --{ !about
    ORDER BY id DESC
    --}
    LIMIT %(look)s
)
SELECT id, at, ended_at, actor, action, target_kind, target_ids, outcome, details, is_match
FROM (
    SELECT *, row_number() OVER (ORDER BY id DESC) AS nth,
           (%(actor)s::text IS NULL OR actor = %(actor)s::text) AND (%(action)s::text IS NULL OR action = %(action)s::text) AS is_match
    FROM looked
) judged
WHERE is_match OR nth = %(look)s
ORDER BY id DESC LIMIT %(limit)s
