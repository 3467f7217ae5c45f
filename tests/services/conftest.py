"""A fork server for the tests that start children without a worker; a database that the tests of a module share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db.connections import BY_INDEX, make_pool
from horsies.core.db.pool import Pool
from horsies.core.embedded import ensure_running, stop
from horsies.core.models.broker import PostgresConfig
from horsies.core.worker.launcher import Launcher
from tests import emptied
from tests.app_support import Add, an_app, define_add
from tests.embedded_support import SETTINGS, place_for_a_server
from tests.services.children import Child, descendants, end_children, is_alive, start_child
from tests.support import eventually

database_url, own_database_url = emptied.database_url, emptied.own_database_url


_LEFT = "DROP TABLE IF EXISTS audit; DROP FUNCTION IF EXISTS audit, refuse CASCADE"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_launcher() -> AsyncIterator[Launcher]:
    """A fork server for all tests of a module, because its start is most of what such a test takes."""
    launcher = Launcher()
    await launcher.start()
    yield launcher
    await launcher.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def launcher(shared_launcher: Launcher) -> AsyncIterator[Launcher]:
    """The module's fork server. No child may be left, nor anything that it started."""
    yield shared_launcher
    assert shared_launcher.pid is not None
    family = [process.pid for process in descendants(shared_launcher.pid)]
    await end_children(shared_launcher)
    await eventually(lambda: not any(is_alive(pid) for pid in family), what="the end of all children")
    server = psutil.Process(shared_launcher.pid)
    await eventually(lambda: server.children() == [], what="the fork server has reaped them all")


@pytest_asyncio.fixture(loop_scope="module")
async def child(launcher: Launcher) -> Child:
    """A child that is ready."""
    child = await start_child(launcher, concurrency=4)
    await child.ready()
    return child


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    """A pool on the test's own database, with the settings of a worker's sessions."""
    pool = make_pool(PostgresConfig(database_url=database_url), min_size=1, max_size=2, options=BY_INDEX)
    yield pool
    await pool.close()


@pytest.fixture
async def broker(database_url: str) -> AsyncIterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    yield broker
    await broker.close_async()


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    """An app on the test's own database."""
    with an_app(database_url) as app:
        yield app


@pytest.fixture
def add(app: Horsies) -> Add:
    return define_add(app)


@pytest.fixture
async def clean_db(module_url: str) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection to it; nothing of an earlier test is there any more."""
    async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
        await conn.execute(_LEFT)
        await conn.execute(emptied.DELETE_ALL)
        yield conn


@pytest.fixture
async def clean_pool(module_url: str) -> AsyncIterator[Pool]:
    """As a worker has it."""
    pool = make_pool(PostgresConfig(database_url=module_url), min_size=1, max_size=2, options=BY_INDEX)
    yield pool
    await pool.close()


@pytest.fixture(scope="module")
def initialized() -> Iterator[Path]:
    """A directory with an embedded database, for all tests of a module but those about making one."""
    with place_for_a_server() as directory:
        ensure_running(directory, settings=SETTINGS)
        yield directory


@pytest.fixture
def path(initialized: Path) -> Iterator[Path]:
    """That directory, at rest."""
    stop(initialized)
    (initialized / "settings.json").write_text('{"fsync": "off"}')
    yield initialized
    stop(initialized)


@pytest.fixture
def new_path() -> Iterator[Path]:
    """Where an embedded database can be created."""
    with place_for_a_server() as directory:
        yield directory / "db"
