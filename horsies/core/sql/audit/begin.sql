-- Writes down what somebody is about to do (D-59a), or has done or been refused if the outcome is known.
INSERT INTO horsies_audit (actor, action, target_kind, target_ids, outcome, details, ended_at)
VALUES (%(actor)s, %(action)s, %(target_kind)s, %(target_ids)s::text[], %(outcome)s::text, %(details)s::jsonb,
        CASE WHEN %(outcome)s::text <> 'begun' THEN now() END)
RETURNING id
