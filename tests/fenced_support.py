"""What the tests of self-fencing share: the app with short thresholds, and what its tasks have left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from horsies import TaskHandle
from tests.support import eventually
from tests.worker_support import ROOT, Rows

FENCED = ROOT / "tests" / "apps" / "fenced.py"
LOCATOR = f"{FENCED}:app"

Configured = Callable[..., Any]


class Trace(NamedTuple):
    """One line that a task left."""

    pid: int
    at: float
    text: str


def traces_of(folder: Path, name: str) -> list[Trace]:
    path = folder / name
    lines = [line.split(maxsplit=2) for line in path.read_text().splitlines()] if path.exists() else []
    return [Trace(int(line[0]), float(line[1]), line[2] if len(line) > 2 else "") for line in lines]


async def begun(folder: Path, name: str) -> int:
    """Wait until a task has begun; the pid of its child."""
    found = await eventually(lambda: traces_of(folder, name), what=f"{name} has begun")
    return found[0].pid


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def taken_from(rows: Rows, task_id: str, claim_seq: int = 1) -> dict[str, Any]:
    """Wait until the claim with this number is over without a success; its attempt row."""

    async def taken() -> dict[str, Any] | None:
        for attempt in await rows.attempts(task_id):
            if attempt["outcome"] == "WORKER_FAILURE":
                return attempt
        return None

    found = await eventually(taken, 20, what="somebody has taken the task")
    assert found is not None
    return found


async def stopped(pid: int) -> None:
    await eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, what=f"{pid} is stopped")


async def in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)
