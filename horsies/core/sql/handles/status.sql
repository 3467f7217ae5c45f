-- How a workflow stands.
SELECT status FROM horsies_workflows WHERE id = %(workflow_id)s
