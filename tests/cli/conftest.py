"""A terminal for the test's database."""

from __future__ import annotations

import pytest

from horsies.core.monitoring import snapshot
from tests import emptied
from tests.cli.support import Terminal

database_url, own_database_url = emptied.database_url, emptied.own_database_url


@pytest.fixture
def terminal(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("DATABASE_URL", "NO_COLOR", "HORSIES_FORCE_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(snapshot, "PART_S", 30.0)  # what a busy machine reads late is no subject here
    monkeypatch.setattr(snapshot, "PARTS_S", 60.0)
    return Terminal(database_url, capsys)
