"""Samples for the type checker; `tests/unit/test_typing.py` runs it on them. They are never imported."""
