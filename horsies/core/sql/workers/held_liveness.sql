-- Which of these liveness locks (D-62) some session of this database holds. The server shows a key in two halves.
SELECT DISTINCT k.key
FROM unnest(%(keys)s::bigint[]) AS k(key)
JOIN pg_locks l ON l.classid::bigint = (k.key >> 32) & 4294967295 AND l.objid::bigint = k.key & 4294967295
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
