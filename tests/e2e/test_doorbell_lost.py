"""Losing every notification costs latency and nothing else (W-62: the scan is the truth): a mixed load runs to its end,
and every row is exactly what it would have been.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.doorbell_support import kill_listeners, listening, remove_the_bell
from tests.e2e.conftest import DOORBELL, Configured
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

LOCATOR = f"{DOORBELL}:app"
MANY, FEW = 60, 6
CANCELLED = "TASK_CANCELLED"

# What the rows of a task must look like in the end: status, error_code, retry_count, and its attempts.
COMPLETED = ("COMPLETED", None, 0, [("COMPLETED", False)])
FAILED = ("FAILED", "AS_TOLD", 0, [("FAILED", False)])
RETRIED = ("COMPLETED", None, 1, [("FAILED", True), ("COMPLETED", False)])
STOPPED = ("CANCELLED", "TASK_CANCELLED", 0, [])


class Load:
    """Sends of all kinds; what each must come to, and what whoever waits for it must get."""

    def __init__(self, tasks: Any, traces: Path) -> None:
        self._tasks = tasks
        self._traces = traces
        self.ends: dict[str, Any] = {}
        self._waits: list[asyncio.Task[tuple[Any, Any]]] = []

    async def send(self) -> None:
        tasks = self._tasks
        for n in range(FEW):
            await self._sent(tasks.flaky.send_async(f"flaky{n}"), RETRIED, (2, None))
            await self._sent(tasks.note.schedule_async(1, f"later{n}"), COMPLETED, (1, None))
            await self._sent(tasks.fail.send_async(f"fail{n}"), FAILED, (None, "AS_TOLD"))
        for n in range(MANY):
            task = (tasks.note, tasks.note_right)[n % 2]
            await self._sent(task.send_async(f"note{n}"), COMPLETED, (1, None), blocking=n % 10 == 0)
        await self._cancel_some()

    async def _cancel_some(self) -> None:
        running = await self._sent(self._tasks.hold.send_async("hold"), STOPPED, (None, CANCELLED))
        waiting = await self._sent(self._tasks.note.schedule_async(600, "never"), STOPPED, (None, CANCELLED))
        await eventually((self._traces / "hold").exists, timeout=30)
        (await waiting.cancel_async()).unwrap()
        (await running.cancel_async(include_running=True)).unwrap()

    async def _sent(self, sending: Any, end: Any, answer: tuple[Any, Any], *, blocking: bool = False) -> Any:
        handle = (await sending).unwrap()
        self.ends[handle.task_id] = end
        if blocking:
            getting = asyncio.to_thread(handle.get, 60_000)
        else:
            getting = handle.get_async(timeout_ms=60_000)
        self._waits.append(asyncio.create_task(_answer(getting, answer)))
        return handle

    async def answers(self) -> None:
        for got, wanted in await asyncio.gather(*self._waits):
            assert got == wanted


async def _answer(getting: Any, wanted: tuple[Any, Any]) -> tuple[Any, Any]:
    result = await getting
    code = None if result.is_ok() else getattr(result.err_value.error_code, "value", result.err_value.error_code)
    return (result.ok if result.is_ok() else None, code), wanted


async def found(rows: Rows) -> dict[str, Any]:
    """What the rows of every task say; none may still be held by anybody."""
    listed = await rows.all(
        "SELECT id, status, error_code, retry_count, claimed, next_retry_at, claim_expires_at,"
        " ARRAY(SELECT ROW(outcome, will_retry)::text FROM horsies_task_attempts a"
        "       WHERE a.task_id = t.id ORDER BY attempt) AS attempts FROM horsies_tasks t"
    )
    assert [row for row in listed if row["claimed"] or row["next_retry_at"] or row["claim_expires_at"]] == []
    return {
        row["id"]: (row["status"], row["error_code"], row["retry_count"], [_attempt(text) for text in row["attempts"]])
        for row in listed
    }


def _attempt(text: str) -> tuple[str, bool]:
    outcome, will_retry = text.strip("()").split(",")
    return outcome, will_retry == "t"


def runs(traces: Path) -> Counter[int]:
    """How many tasks ran once, twice, …"""
    return Counter(len(path.read_text().splitlines()) for path in traces.iterdir())


async def run_it_all(tasks: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(tasks.app, app_locator=LOCATOR, processes=2):
        load = Load(tasks, traces)
        await load.send()
        await load.answers()
        assert await found(rows) == load.ends
    assert runs(traces) == {1: MANY + 2 * FEW + 1, 2: FEW}


@pytest.mark.parametrize("mode", ["when_waiting", "off"])
async def test_w62_with_every_bell_removed_a_mixed_load_ends_exactly_as_it_should(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows, traces: Path, mode: str
) -> None:
    tasks = doorbell(NOTIFY=mode)
    await remove_the_bell(db, mode)
    async with listening(database_url) as heard:
        await run_it_all(tasks, rows, traces)
        assert await heard() == []


@contextlib.asynccontextmanager
async def nobody_can_listen(url: str) -> AsyncIterator[Counter[str]]:
    """Every LISTEN session is ended as soon as it is seen."""
    killed: Counter[str] = Counter()

    async def go_on() -> None:
        while True:
            killed["sessions"] += await asyncio.to_thread(kill_listeners, url)
            await asyncio.sleep(0.05)

    killing = asyncio.create_task(go_on())
    try:
        yield killed
    finally:
        killing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killing


async def test_t11_with_listeners_killed_again_and_again_a_mixed_load_ends_exactly_as_it_should(
    doorbell: Configured, database_url: str, rows: Rows, traces: Path
) -> None:
    tasks = doorbell(NOTIFY="always")
    async with nobody_can_listen(database_url) as killed:
        await run_it_all(tasks, rows, traces)
    assert killed["sessions"] >= 2
