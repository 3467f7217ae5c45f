-- Records what is installed from now on.
INSERT INTO horsies_meta (key, value)
SELECT * FROM unnest(%(keys)s::text[], %(values)s::text[])
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value
