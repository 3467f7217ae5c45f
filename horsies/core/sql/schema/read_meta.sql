-- Everything an installation has recorded.
SELECT key, value FROM horsies_meta
