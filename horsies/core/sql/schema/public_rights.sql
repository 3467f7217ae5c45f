-- What every role may do here.
SELECT has_database_privilege('public', current_database()::text, 'CONNECT'),
       has_schema_privilege('public', current_schema()::text, 'CREATE')
