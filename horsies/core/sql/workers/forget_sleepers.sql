-- Words of workers and clients that died while they slept or waited; they have had no effect since `until`.
DELETE FROM horsies_waiting WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM horsies_waiting WHERE until < now() - interval '1 minute' LIMIT %(most)s FOR UPDATE SKIP LOCKED))
