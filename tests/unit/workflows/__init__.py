"""Workflows as values: nodes, specs, definitions, plans, and what is refused (contract 05, without a database)."""
