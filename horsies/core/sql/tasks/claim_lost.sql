-- Tells the owners of these tasks, should they live, that somebody else has taken them (D-61).
SELECT pg_notify('horsies_claim_lost', id) FROM unnest(%(ids)s::text[]) AS w(id)
