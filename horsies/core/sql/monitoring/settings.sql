-- Settings for the queries of one transaction: they only read, they end after this time, and they are planned for their
-- values, because many values filter nothing. A bounded look may not read a table as a whole, nor all that an index has in
-- order only to sort it, whatever the statistics say; who wants everything may. (The sessions of the pool are set for
-- statements that have exactly one good index.)
SELECT set_config('transaction_read_only', 'on', TRUE), set_config('statement_timeout', %(timeout_ms)s::text, TRUE),
       set_config('plan_cache_mode', 'force_custom_plan', TRUE), set_config('jit', 'off', TRUE),
       set_config('enable_seqscan', CASE WHEN %(reads_all)s THEN 'on' ELSE 'off' END, TRUE),
       set_config('enable_bitmapscan', CASE WHEN %(reads_all)s THEN 'on' ELSE 'off' END, TRUE),
       set_config('enable_sort', CASE WHEN %(reads_all)s THEN 'on' ELSE 'off' END, TRUE)
