-- Returns the parents of the given workflows.
SELECT DISTINCT parent_workflow_id FROM horsies_workflows
WHERE id = ANY(%(children)s::text[]) AND parent_workflow_id IS NOT NULL
