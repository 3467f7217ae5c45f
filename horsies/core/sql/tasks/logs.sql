-- What a task has logged (P-51a), from a place on: the run and the line that were read last. `most` rows at most; NULL means all.
SELECT claim_seq, attempt, first_line, lines FROM horsies_task_logs
WHERE task_id = %(task_id)s AND (claim_seq, last_line) > (%(claim_seq)s::int, %(line)s::int)
ORDER BY claim_seq, first_line LIMIT %(most)s::bigint
