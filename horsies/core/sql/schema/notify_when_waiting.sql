-- notify = 'when_waiting': notify only if there is a waiting mark in horsies_waiting, because every commit that
-- notifies takes one lock for the whole server, and signals every session that listens. One notification for each
-- statement and queue.
CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text, giver text)
RETURNS void AS $$
BEGIN
    PERFORM horsies_ring_for_queue(queue, 1::bigint, task_id, giver);
END;
$$ LANGUAGE plpgsql;
