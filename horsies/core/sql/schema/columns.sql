-- The columns of every table of ours that exists.
SELECT c.relname::text, array_agg(a.attname::text)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND starts_with(c.relname, 'horsies_')
GROUP BY c.relname
