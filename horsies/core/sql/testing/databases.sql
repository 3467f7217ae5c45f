-- The databases of test runs, of roles that we belong to (X-10); others look after their own.
SELECT datname FROM pg_database WHERE starts_with(datname, %(prefix)s) AND pg_has_role(datdba, 'USAGE')
