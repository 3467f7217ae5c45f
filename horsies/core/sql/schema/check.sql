-- What the tables of this session's schema have recorded. No row if anything keeps this session from using them, and an
-- error if there are no tables: then the steps of an installation find out what to say, or to create.
SELECT jsonb_object_agg(m.key, m.value)
FROM horsies_meta m
WHERE current_setting('server_version_num')::int >= 130000
      AND NOT pg_is_in_recovery() AND NOT current_setting('transaction_read_only')::bool
      AND m.tableoid::regclass = to_regclass(quote_ident(current_schema()) || '.horsies_meta')
HAVING count(*) > 0
