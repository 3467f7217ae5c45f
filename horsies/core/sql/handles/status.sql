-- The state of a workflow.
SELECT status FROM horsies_workflows WHERE id = %(workflow_id)s
