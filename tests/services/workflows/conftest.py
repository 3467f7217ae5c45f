"""An app on the module's database, emptied for each test, with a hand that works for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import Horsies
from tests.app_support import an_app
from tests.services.workflows.hand import Hand, Tasks


@pytest.fixture
async def app(module_url: str, clean_db: AsyncConnection[Any]) -> AsyncIterator[Horsies]:
    with an_app(module_url) as app:
        yield app


@pytest.fixture
def tasks(app: Horsies) -> Tasks:
    return Tasks(app)


@pytest.fixture
def hand(app: Horsies, clean_db: AsyncConnection[Any]) -> Hand:
    return Hand(app, clean_db)
