-- How these tasks stand: what keeps one from being cancelled, sent again or moved.
SELECT id, status, workflow_id, queue_name, priority FROM horsies_tasks WHERE id = ANY(%(ids)s::text[])
