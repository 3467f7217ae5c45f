-- An idle worker's mark says which queues it serves and on which channel it listens, so that a new task wakes one worker and
-- not all of them (D-61). Older workers leave marks for each queue, without these columns, and are notified as before.
ALTER TABLE horsies_waiting ADD COLUMN queues TEXT[], ADD COLUMN wake_key BIGINT;
