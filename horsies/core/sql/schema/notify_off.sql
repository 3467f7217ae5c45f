-- notify = 'off': nothing sends a notification, and all processes poll. The functions stay, so that the mode can change
-- without a table lock.
CREATE OR REPLACE FUNCTION horsies_wake_workers(queue text, most bigint, giver text, word text)
RETURNS void AS $$
BEGIN
    RETURN;
END;
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text, giver text)
RETURNS void AS $$
BEGIN
    RETURN;
END;
$$ LANGUAGE plpgsql;
