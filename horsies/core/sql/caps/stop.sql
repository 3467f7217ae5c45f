-- Stops counting queues for which no worker has had a cap for this long (D-56). A worker that claims under one again begins
-- to count anew.
WITH stopped AS (
    DELETE FROM horsies_load WHERE used_at < statement_timestamp() - %(after)s::interval RETURNING queue_name
), cleared AS (
    DELETE FROM horsies_load_moves WHERE queue_name IN (SELECT queue_name FROM stopped)
)
SELECT queue_name FROM stopped
