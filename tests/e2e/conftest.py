"""Fixtures of the tests with real workers."""

from __future__ import annotations

import importlib.util
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.worker_support import ROOT, Rows, SharedWorker

BASIC_FILE = ROOT / "tests" / "apps" / "basic.py"
LIMITS = ROOT / "tests" / "apps" / "limits.py"
DOORBELL = ROOT / "tests" / "apps" / "doorbell.py"
MORTAL = ROOT / "tests" / "apps" / "mortal.py"
FENCED = ROOT / "tests" / "apps" / "fenced.py"
NOTING = f"{ROOT / 'tests' / 'apps' / 'noting.py'}:app"

Configured = Callable[..., Any]


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tasks of the test app leave their traces."""
    folder = tmp_path / "traces"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("TRACES", str(folder))
    return folder


@pytest.fixture
def rows(database_url: str) -> Rows:
    return Rows(database_url)


@pytest.fixture
async def basic(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The module `tests/apps/basic.py`, loaded anew for this test's database."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    module = load(BASIC_FILE)
    yield module
    await module.app.get_broker().close_async()
    del sys.modules[module.__name__]


@pytest.fixture(scope="module")
def shared_traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tasks that run in the module's worker leave their traces."""
    folder = tmp_path_factory.mktemp("traces")
    folder.chmod(0o777)
    return folder


@pytest.fixture(scope="module")
def shared_rows(module_url: str) -> Rows:
    return Rows(module_url)


@pytest.fixture(scope="module")
def shared_worker(module_url: str, shared_traces: Path) -> Iterator[SharedWorker]:
    """A worker of `tests/apps/basic.py` that the tests of a module share."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DATABASE_URL", module_url)
        patched.setenv("TRACES", str(shared_traces))
        module = load(BASIC_FILE)
        worker = SharedWorker(module.app)
        worker.start()
    yield worker
    worker.stop()
    del sys.modules[module.__name__]


def clear(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


@pytest.fixture
async def shared(
    shared_worker: SharedWorker,
    module_url: str,
    shared_traces: Path,
    shared_rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Any]:
    """The module `tests/apps/basic.py` for a test that shares the worker. It finds nothing of an earlier test, and must
    leave nothing to be done."""
    await shared_rows.all(
        "WITH attempts AS (DELETE FROM horsies_task_attempts), beats AS (DELETE FROM horsies_heartbeats)"
        " DELETE FROM horsies_tasks RETURNING id"
    )
    clear(shared_traces)
    monkeypatch.setenv("DATABASE_URL", module_url)
    monkeypatch.setenv("TRACES", str(shared_traces))
    module = load(BASIC_FILE)
    yield module
    await module.app.get_broker().close_async()
    del sys.modules[module.__name__]
    open_tasks = "SELECT id, task_name, status FROM horsies_tasks WHERE status IN ('PENDING', 'CLAIMED', 'RUNNING')"
    assert await shared_rows.all(open_tasks) == []
    workers = await shared_rows.all("SELECT worker_id FROM horsies_workers")
    assert [row["worker_id"] for row in workers] == [shared_worker.worker_id] and shared_worker.is_running


@pytest.fixture
async def limits(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Configured]:
    """`tests/apps/limits.py`, configured through environment variables that the test sets first."""
    async with configurable(LIMITS, database_url, monkeypatch) as configured:
        yield configured


@pytest.fixture
async def doorbell(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Configured]:
    """`tests/apps/doorbell.py`, configured in the same way."""
    async with configurable(DOORBELL, database_url, monkeypatch) as configured:
        yield configured


@pytest.fixture
async def fenced(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Configured]:
    """`tests/apps/fenced.py`, with the shortest thresholds."""
    async with configurable(FENCED, database_url, monkeypatch) as configured:
        yield configured


@pytest.fixture
async def mortal(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Configured]:
    """`tests/apps/mortal.py`, configured in the same way."""
    async with configurable(MORTAL, database_url, monkeypatch) as configured:
        yield configured


@pytest.fixture
def signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test makes the files for which tasks of `tests/apps/noting.py` wait."""
    folder = tmp_path / "signals"
    folder.mkdir()
    monkeypatch.setenv("SIGNALS", str(folder))
    return folder


@pytest.fixture
def noting(database_url: str, signals: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module `tests/apps/noting.py`, for this test's database."""
    with imported("noting", database_url, monkeypatch) as module:
        yield module


@contextmanager
def imported(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """This module of `tests/apps`, imported anew."""
    monkeypatch.setenv("DATABASE_URL", url)
    sys.modules.pop(f"tests.apps.{name}", None)
    module = import_module(f"tests.apps.{name}")
    yield module
    module.app.get_broker().close()


@asynccontextmanager
async def configurable(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Configured]:
    """The app of this file, loaded with the settings given, as often as one likes."""
    monkeypatch.setenv("DATABASE_URL", url)
    loaded: list[Any] = []

    def configured(**settings: str) -> Any:
        for variable, value in settings.items():
            monkeypatch.setenv(variable, value)
        loaded.append(load(path))
        return loaded[-1]

    yield configured
    for module in loaded:
        await module.app.get_broker().close_async()


def load(path: Path) -> ModuleType:
    name = f"test_app_{uuid.uuid4().hex}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
