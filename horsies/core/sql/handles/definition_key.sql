-- The definition that a workflow was made from.
SELECT definition_key FROM horsies_workflows WHERE id = %(workflow_id)s
