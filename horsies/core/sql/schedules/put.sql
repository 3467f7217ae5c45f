-- Adds a run-time schedule, or replaces its definition (D-36); a paused schedule stays paused. Returns whether it is new.
INSERT INTO horsies_schedules AS s (name, definition, updated_at)
VALUES (%(name)s, %(definition)s::jsonb, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET definition = EXCLUDED.definition, updated_at = EXCLUDED.updated_at
RETURNING xmax = 0
