-- The constraints of limits.sql that exist in this schema, and whether all rows are known to keep them.
SELECT c.conname::text, c.convalidated
FROM pg_constraint c
WHERE c.connamespace = quote_ident(current_schema())::regnamespace AND c.contype = 'c' AND c.conname LIKE 'horsies\_%\_limits\_check'
