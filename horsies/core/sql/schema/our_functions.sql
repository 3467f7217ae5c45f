-- The functions of the schema with their signatures, in the schema of horsies_meta. All of ours begin with horsies_.
SELECT p.oid::regprocedure::text
FROM pg_proc p JOIN pg_class c ON c.relnamespace = p.pronamespace
WHERE c.oid = to_regclass('horsies_meta') AND left(p.proname, 8) = 'horsies_'
ORDER BY 1
