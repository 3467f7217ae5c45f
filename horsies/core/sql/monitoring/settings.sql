-- For the questions of one transaction: only reading, not for longer than this, and planned for the values that are asked for,
-- as many of them filter nothing. (The sessions of the pool are set for statements that have an index to go by, and no other
-- way.)
SELECT set_config('transaction_read_only', 'on', TRUE), set_config('statement_timeout', %(timeout_ms)s::text, TRUE),
       set_config('plan_cache_mode', 'force_custom_plan', TRUE), set_config('enable_seqscan', 'on', TRUE),
       set_config('enable_bitmapscan', 'on', TRUE)
