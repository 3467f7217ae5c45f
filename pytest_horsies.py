"""The pytest plugin of horsies (X-10): fixtures for tests of tasks and workflows. pytest loads this module at every
start, in every project that has horsies installed, so it imports horsies only when a fixture is used.

    horsies_database   the URL of a database of the test's own, with the tables of horsies
    horsies_app        the app that the ini option `horsies_app` names, on that database
    horsies_worker     a real worker process for that app, ready to work
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from horsies import Horsies
    from horsies.testing.databases import RunDatabases
    from horsies.testing.worker_process import SpawnedWorker

OPTION = "horsies_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(OPTION, "The app of the fixture horsies_app, for example shop:app.", default="")


@pytest.fixture(scope="session")
def _horsies_databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunDatabases]:
    """The server of the run: an embedded one, or that of HORSIES_TEST_DATABASE_URL."""
    from horsies.testing.databases import RunDatabases

    databases = RunDatabases(_shared(request.config, tmp_path_factory.getbasetemp()))
    yield databases
    databases.close()


@pytest.fixture
def horsies_database(_horsies_databases: RunDatabases) -> Iterator[str]:
    """The URL of a database of the test's own, with the tables of horsies in it."""
    with _horsies_databases.fresh() as url:
        yield url


@pytest.fixture
def horsies_app(request: pytest.FixtureRequest) -> Iterator[Horsies]:
    """The app that the ini option `horsies_app` names, on a database of the test's own."""
    locator = str(request.config.getini(OPTION))
    if not locator:
        raise pytest.UsageError(
            "the fixture horsies_app needs to know your app: set `horsies_app = shop:app` in the settings of pytest, "
            "or use `app.testing.on_database(horsies_database)` in a fixture of your own"
        )
    app = _load(locator, request.config.rootpath)
    with app.testing.on_database(request.getfixturevalue("horsies_database")):
        yield app


@pytest.fixture
def horsies_worker(horsies_app: Horsies) -> Iterator[SpawnedWorker]:
    """A real worker process for the app, on the database of the test. It is stopped when the test has ended."""
    with horsies_app.testing.worker() as worker:
        yield worker


def _load(locator: str, root: Path) -> Horsies:
    from horsies.core.locate import load_app

    if str(root) not in sys.path:
        sys.path.append(str(root))
    return load_app(locator)


def _shared(config: pytest.Config, base: Path) -> Path:
    """A directory that all processes of the run see. The workers of pytest-xdist have theirs inside it."""
    return base.parent if hasattr(config, "workerinput") else base
