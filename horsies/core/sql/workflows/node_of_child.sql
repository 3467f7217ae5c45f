-- The state of the node that has this workflow as its child, if one has: a node that was retried has another child (F-94).
SELECT status FROM horsies_workflow_tasks WHERE sub_workflow_id = %(child)s
