"""A terminal for the test's database."""

from __future__ import annotations

import pytest

from tests import emptied
from tests.cli.support import Terminal

database_url, own_database_url = emptied.database_url, emptied.own_database_url


@pytest.fixture
def terminal(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("DATABASE_URL", "NO_COLOR", "HORSIES_FORCE_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return Terminal(database_url, capsys)
