-- The rows that stood in the way of an insert, by id (T-54) or by idempotency key (T-57), and in what they differ from the
-- sends. The function compares, because a sender need not have the right to read other tasks (O-20).
SELECT place, same_id, task_id, same_payload, differing FROM horsies_find_sent(%(rows)s::json)
