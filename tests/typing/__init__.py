"""Samples for the type checker; `python -m tests.typing` runs it on them. They are never imported."""
