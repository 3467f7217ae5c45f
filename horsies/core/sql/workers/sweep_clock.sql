-- What this transaction calls now, and how many seconds ago that was: hooks take time.
SELECT now(), extract(epoch FROM clock_timestamp() - now())::float8
