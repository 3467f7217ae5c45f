-- The time of this transaction, by the clock of the database.
SELECT now()
