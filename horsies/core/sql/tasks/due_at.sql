-- When a task is due that was sent `age` seconds ago (T-44), as a text that every DateStyle reads: COPY takes no expression.
SELECT to_char((statement_timestamp() - make_interval(secs => %(age)s)) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
