-- Nobody changes a task from now on until the end of this transaction: what is in flight can be counted (D-65).
LOCK TABLE horsies_tasks IN SHARE ROW EXCLUSIVE MODE
