"""A fork server for the tests that start children without a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psutil
import pytest

from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, descendants, is_alive, start_child
from tests.support import eventually


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    """A running fork server. Whatever a test does to it, no process may be left."""
    launcher = Launcher()
    await launcher.start()
    assert launcher.pid is not None
    server = psutil.Process(launcher.pid)
    yield launcher
    family = [process.pid for process in descendants(server.pid)] if server.is_running() else []
    await launcher.stop()
    await eventually(lambda: not any(is_alive(pid) for pid in [server.pid, *family]), what="the end of all processes")


@pytest.fixture
async def child(launcher: Launcher) -> Child:
    """A child that is ready."""
    child = await start_child(launcher, concurrency=4)
    await child.ready()
    return child
