-- Returns the state of the node that has this workflow as its child, if there is one: a retried node has another child (F-94).
SELECT status FROM horsies_workflow_tasks WHERE sub_workflow_id = %(child)s
