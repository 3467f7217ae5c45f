"""How many modules a newcomer passes who follows one task from `send()` to `get()`: a profile hook counts them in the
process that sends and waits, in the supervisor (here the same process) and in the child. What the caller does with the
answers is not part of the walk."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import load
from tests.worker_support import ROOT, running_worker

pytestmark = pytest.mark.e2e

WALK = ROOT / "tests" / "apps" / "walk.py"
MOST = 40


@pytest.fixture
async def walk(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The module `tests/apps/walk.py`, with its hook in place before any thread of ours starts."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)  # another test may have switched tracing on
    module = load(WALK)
    module.switch(True)
    yield module
    module.switch(False)
    await module.app.get_broker().close_async()
    del sys.modules[module.__name__]


async def test_a_task_passes_at_most_forty_modules(walk: Any) -> None:
    async with running_worker(walk.app, app_locator=f"{WALK}:app", processes=1):
        await run(walk.watch)
        for _ in range(3):  # first uses: threads, connections, sessions, caches
            await run_both_ways(walk)
        walk.entered.clear()
        await run_both_ways(walk)
        here = set(walk.entered)
        child = set(await run(walk.walked))
    passed = sorted(here | child)
    assert {"core/producer/send.py", "core/worker/dispatch.py"} <= here and "core/tasks/execute.py" in child
    assert len(passed) <= MOST, f"{len(passed)} modules:\n" + "\n".join(passed)


async def run_both_ways(walk: Any) -> None:
    """One task sent and waited for on an event loop, and one without."""
    assert await run(walk.double, 4) == 8
    assert await asyncio.to_thread(run_sync, walk.double, 4) == 8


async def run(task: Any, *args: Any) -> Any:
    handle = (await task.send_async(*args)).value
    return (await handle.get_async(timeout_ms=30_000)).unwrap()


def run_sync(task: Any, *args: Any) -> Any:
    return task.send(*args).value.get(timeout_ms=30_000).unwrap()
