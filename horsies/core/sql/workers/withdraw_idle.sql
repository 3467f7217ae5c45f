-- The worker is busy again and needs no notifications. (The topics are arrays, and rows are locked in order, as in waiting/withdraw.)
DELETE FROM horsies_waiting WHERE holder = %(worker_id)s AND topic = ANY(ARRAY(
    SELECT topic FROM horsies_waiting
    WHERE holder = %(worker_id)s AND topic = ANY(ARRAY(SELECT 'queue:' || q FROM unnest(%(queues)s::text[]) AS q))
    ORDER BY topic FOR UPDATE))
