-- Writes down what came of an action that had begun (D-59a), once. NULL leaves the ids as they are.
UPDATE horsies_audit
SET outcome = %(outcome)s, ended_at = now(), target_ids = COALESCE(%(target_ids)s::text[], target_ids),
    details = details || %(details)s::jsonb
WHERE id = %(audit_id)s AND outcome = 'begun'
RETURNING id
