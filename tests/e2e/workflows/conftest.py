"""Fixtures of the tests in which real workers run workflows."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import load
from tests.worker_support import ROOT

FLOWS = ROOT / "tests" / "apps" / "flows.py"


@pytest.fixture
async def flows(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The module `tests/apps/flows.py`, loaded anew for this test's database."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    module = load(FLOWS)
    yield module
    await module.app.get_broker().close_async()
    del sys.modules[module.__name__]
