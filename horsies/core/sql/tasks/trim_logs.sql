-- The middle of what these runs have logged is dropped (P-51a): the rows between their first lines and their last ones.
DELETE FROM horsies_task_logs l
USING json_to_recordset(%(rows)s::json) AS w(task_id text, claim_seq int, after int, before int)
WHERE l.task_id = w.task_id AND l.claim_seq = w.claim_seq AND l.first_line > w.after AND l.last_line < w.before
