"""The engine of workflows against a simple model of its rules, on a real database.

Hypothesis makes random graphs (all joins, policies, maps, sub-workflows; up to 60 nodes) and plays with them:

- `story.py`: one act after the other. Workers claim, start and end tasks in any order, ends are told to the engine
  late, twice or never, operators pause, resume, cancel and retry, deadlines pass, connections break at any statement
  and reconciliation follows. After each act every row is what the model says.
- `crowd.py`: several workers at the same time, with or without operators and lost connections among them. In the end
  every node is what the graph and the fates of its tasks make of it, whatever the order was, and the trail of all
  changes of status has only arrows of the rules, each READY node with its join fulfilled, each run with one task.
"""
