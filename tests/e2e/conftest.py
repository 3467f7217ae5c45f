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

from tests.worker_support import ROOT, Rows

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
    module = load(ROOT / "tests" / "apps" / "basic.py")
    yield module
    await module.app.get_broker().close_async()
    del sys.modules[module.__name__]


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
