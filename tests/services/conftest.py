"""A fork server for the tests that start children without a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psutil
import pytest_asyncio

from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, descendants, end_children, is_alive, start_child
from tests.support import eventually


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
