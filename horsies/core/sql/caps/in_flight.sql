-- What is in flight in these queues, or in all, as a claim counts it (W-24); a claim takes nothing from one that is not counted.
SELECT n.name, COALESCE(CASE WHEN %(hard)s OR n.name = '*' THEN f.held ELSE f.running END, 2147483647)
FROM unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL horsies_in_flight(n.name) f
