-- Returns when schedules are due, the first ones first, and before them those that have to begin: their state is missing, was
-- reset, or is that of another configuration. It locks nothing; the firing transaction reads the states again (S-32).
-- A time that Python cannot represent ('infinity' means: do not fire until this is changed) becomes one that it can.
SELECT w.name,
       CASE WHEN s.config_hash = w.hash AND s.next_run_at IS NOT NULL
            THEN LEAST(GREATEST(s.next_run_at, '1970-01-01Z'), '9999-12-01Z') END AS next_run_at,
       now()
FROM unnest(%(names)s::text[], %(hashes)s::text[]) AS w(name, hash)
LEFT JOIN horsies_schedule_state s ON s.schedule_name = w.name
ORDER BY 2 NULLS FIRST, w.name LIMIT %(most)s
