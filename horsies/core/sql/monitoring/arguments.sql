-- The arguments of these tasks, each cut to `most` characters. Of a long text that is stored elsewhere, only its beginning is read.
SELECT id, task_name, left(args, %(most)s), left(kwargs, %(most)s) FROM horsies_tasks WHERE id = ANY(%(ids)s::text[])
