-- A run-time schedule is there (D-36), new or with another definition; a paused one stays paused. Says whether it is new.
INSERT INTO horsies_schedules AS s (name, definition, updated_at)
VALUES (%(name)s, %(definition)s::jsonb, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET definition = EXCLUDED.definition, updated_at = EXCLUDED.updated_at
RETURNING xmax = 0
