-- What these runs have logged (D-23), some lines in each row. A row that is there already came twice, from the socket of a child
-- and from its outbox. Lines of an earlier run of the task are kept too.
INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)
SELECT t.id, w.claim_seq, w.attempt, w.first_line, w.last_line, w.lines
FROM json_to_recordset(%(rows)s::json) AS w(task_id text, claim_seq int, attempt int, first_line int, last_line int, lines text)
JOIN horsies_tasks t ON t.id = w.task_id AND t.claim_seq >= w.claim_seq
ORDER BY t.id, w.claim_seq, w.first_line
ON CONFLICT DO NOTHING
