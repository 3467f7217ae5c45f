"""The code that speaks to each system, imported only in processes of its own. Each module has `install` (the schema),
`sender`, and `work` or an application that the system's own command runs as a worker.
"""
