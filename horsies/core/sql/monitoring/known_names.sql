-- The task names that workers with these hashes know, unless there are too many to show.
SELECT names_hash, names FROM horsies_known_names WHERE names_hash = ANY(%(hashes)s::text[]) AND cardinality(names) <= %(most)s
