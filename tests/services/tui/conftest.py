"""The terminal dashboard on a database of the test's own, driven by Textual's pilot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.monitoring import snapshot
from tests.services.tui.support import Viewer, watching


@pytest.fixture
async def viewer(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Viewer]:
    """Somebody who looks at the test's database, in a terminal of 100 by 40."""
    monkeypatch.setattr(snapshot, "PART_S", 30.0)  # what a busy machine reads late is no subject here
    monkeypatch.setattr(snapshot, "PARTS_S", 60.0)
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    broker.only_look()
    async with watching(broker) as viewer:
        yield viewer
    await broker.close_async()
