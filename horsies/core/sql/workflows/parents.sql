-- Returns the parents of the given workflows. OFFSET 0 is a fence: with both conditions in one place, PostgreSQL 14, 15 or 16
-- may walk through all workflows that have a parent instead of looking up these few.
SELECT DISTINCT parent_workflow_id
FROM (SELECT parent_workflow_id FROM horsies_workflows WHERE id = ANY(%(children)s::text[]) OFFSET 0) given
WHERE parent_workflow_id IS NOT NULL
