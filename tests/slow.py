"""Tests that are in every run, and larger in a slow one (`pytest --slow`, which otherwise runs only what is marked)."""

from __future__ import annotations

import pytest

IS_RUN = False  # `conftest.py` sets it before any test is imported


def larger(reason: str) -> list[pytest.MarkDecorator]:
    """The marks of tests whose sizes depend on `IS_RUN`."""
    return [pytest.mark.slow(reason)] if IS_RUN else []
