"""The databases of the tests: one embedded server for the whole run (all xdist workers share it), one template
database with the schema, a fresh copy of it for each test that asks. A test that leaves a connection, an advisory
lock or a process behind fails. The server lives in memory where there is room: to make and drop a database writes and
deletes several hundred files, and on a disk this takes most of the time of a short test.

`HORSIES_TEST_DATABASE_URL` names another server to use instead: `given_server.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import AsyncConnection, sql

from horsies.core import logs
from tests import emptied, given_server, slow
from tests.databases import create_database, fresh_database, with_database

# The machine may be busy with other things: how long an example takes says nothing.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

SERVER_VARIABLE = "HORSIES_TEST_SERVER"
PREFIX = "horsies-tests-"
TEMPLATE = "horsies_template"
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 3 << 30  # ten times what the server of a run takes; a container often has 64 MB only
STALE_S = 3600
TESTS = Path(__file__).parent
# The longest first, so that the run does not end with one process at work and the others idle: `make test-times`.
LONGEST = TESTS / "longest.txt"
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "checkpoint_timeout": "30min",
    "max_wal_size": "512MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


def pytest_configure(config: pytest.Config) -> None:
    """The process that starts the run names the server's directory; xdist workers inherit the name."""
    os.environ["TERM"] = "xterm-256color"  # what commands write must not depend on who runs the tests
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A run in the background of a shell; the programs that the tests start must hear Ctrl-C all the same.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.option.loadscopereorder = (
        False  # xdist would begin with the files of many tests, and those are the quick ones
    )
    slow.IS_RUN = config.getoption("--slow")
    if SERVER_VARIABLE in os.environ:
        return
    _clear_away_killed_runs()
    directory = tempfile.mkdtemp(prefix=PREFIX, dir=servers_home())
    os.chmod(directory, 0o711)  # run by root, the server is another user's and must get through
    os.environ[SERVER_VARIABLE] = directory
    os.environ["HORSIES_RUNTIME_DIR"] = str(Path(directory) / "runtime")  # for the start journals of workers
    config.add_cleanup(lambda: _remove_server(Path(directory)))
    if (run := given_server.begin()) is not None:
        config.add_cleanup(run.end)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, and no others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_slow_run = config.getoption("--slow")
    chosen = [item for item in items if (item.get_closest_marker("slow") is not None) == is_slow_run]
    left_out = [item for item in items if (item.get_closest_marker("slow") is not None) != is_slow_run]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    turns = {TESTS / name: turn for turn, name in enumerate(LONGEST.read_text().split())}
    items[:] = sorted(chosen, key=lambda item: turns.get(item.path, len(turns)))


shared_database = emptied.shared_database


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that is run in this process configures logging, for a stream that ends with its test."""
    root = logging.getLogger()
    level = root.level
    yield
    for ours in [handler for handler in root.handlers if isinstance(handler, logs.Handler)]:
        root.removeHandler(ours)
    root.setLevel(level)
    for name in ("asyncio", "psycopg"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _imports_as_they_were(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A command that is run in this process puts the current directory on the path and imports an app from there. No
    later test may find either."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    folder = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
            del sys.modules[name]


def servers_home() -> Path:
    """Where the directory of the server is made. The tests that fill tables with a million rows stay on the disk."""
    with contextlib.suppress(OSError):
        if not slow.IS_RUN and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED:
            tempfile.TemporaryFile(dir=MEMORY).close()
            return MEMORY
    return Path(tempfile.gettempdir())


def _clear_away_killed_runs() -> None:
    """A run that was killed leaves its directory; its server has stopped when nobody holds the users' lock."""
    homes = {MEMORY, Path(tempfile.gettempdir())}
    for lock in (lock for home in homes for lock in home.glob(f"{PREFIX}*/users.lock")):
        with contextlib.suppress(OSError), lock.open() as file:
            if time.time() - lock.stat().st_mtime < STALE_S:
                continue  # it may belong to a run that is just starting
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _remove_server(directory: Path) -> None:
    os.environ.pop(SERVER_VARIABLE, None)
    try:
        from horsies.core.embedded import stop  # not at the top: a broken import is a test's failure, not the run's

        stop(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def server_url() -> str:
    """The maintenance database of the run's server."""
    if given_server.VARIABLE in os.environ:
        return given_server.url()
    from horsies.core.embedded import ensure_running

    return with_database(ensure_running(os.environ[SERVER_VARIABLE], settings=SETTINGS), "postgres")


@pytest.fixture(scope="session")
def server_version(server_url: str) -> int:
    """The major version of the run's server."""
    with psycopg.connect(server_url) as conn:
        return conn.info.server_version // 10_000


@pytest.fixture(scope="session")
def superuser(server_url: str) -> None:
    """For tests that no ordinary role can make: they read plans, switch triggers off, or create roles."""
    with psycopg.connect(server_url) as conn:
        if conn.info.parameter_status("is_superuser") != "on":
            pytest.skip(f"needs a superuser, and the role of {given_server.VARIABLE} is none")


@pytest.fixture(scope="session")
def template(server_url: str) -> str:
    """Name of a database with the schema installed, made once for each run."""
    name, draft = given_server.database_name(TEMPLATE), given_server.database_name("horsies_draft")
    with _only_one_worker(), psycopg.connect(server_url, autocommit=True) as conn:
        if not conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
            given_server.drop_database(conn, draft)  # of a try that failed
            create_database(conn, draft)
            with ThreadPoolExecutor(1) as aside:  # the first test to ask may have a loop running already
                aside.submit(asyncio.run, _install(with_database(server_url, draft))).result()
            # So that copies never have to wait.
            conn.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(draft)))
            conn.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(draft), sql.Identifier(name)))
    return name


@pytest.fixture
def database_url(server_url: str, template: str) -> Iterator[str]:
    """A database of the test's own with the schema installed."""
    with fresh_database(server_url, template) as url:
        yield url


@pytest.fixture(scope="module")
def module_url(server_url: str, template: str) -> Iterator[str]:
    """A database that the tests of a module share."""
    with fresh_database(server_url, template) as url:
        yield url


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A database of the test's own with nothing in it."""
    with fresh_database(server_url, "template0") as url:
        yield url


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[AsyncConnection]:
    """An autocommit connection to the test's database."""
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        yield conn


async def _install(url: str) -> None:
    from horsies.core.schema.install import install

    async with await AsyncConnection.connect(url) as conn:
        await install(conn)


@contextlib.contextmanager
def _only_one_worker() -> Iterator[None]:
    with Path(os.environ[SERVER_VARIABLE], "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
