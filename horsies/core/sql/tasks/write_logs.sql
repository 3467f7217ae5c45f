-- What these runs have logged (D-23), some lines in each row. Lines may come twice: from the socket of a child and from its
-- outbox, or once more with the end of the task, and then with more behind them. The longer row wins. Lines of an earlier run of
-- the task are kept too.
INSERT INTO horsies_task_logs AS l (task_id, claim_seq, attempt, first_line, last_line, lines)
SELECT DISTINCT ON (t.id, w.claim_seq, w.first_line) t.id, w.claim_seq, w.attempt, w.first_line, w.last_line, w.lines
FROM json_to_recordset(%(rows)s::json) AS w(task_id text, claim_seq int, attempt int, first_line int, last_line int, lines text)
JOIN horsies_tasks t ON t.id = w.task_id AND t.claim_seq >= w.claim_seq
ORDER BY t.id, w.claim_seq, w.first_line, w.last_line DESC
ON CONFLICT (task_id, claim_seq, first_line) DO UPDATE
SET last_line = EXCLUDED.last_line, lines = EXCLUDED.lines WHERE l.last_line < EXCLUDED.last_line
