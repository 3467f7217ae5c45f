-- Whether any queue is counted (D-56).
SELECT EXISTS (SELECT FROM horsies_load)
