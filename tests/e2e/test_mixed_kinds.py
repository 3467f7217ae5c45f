"""Async tasks behind sync ones, in a worker whose children all run async tasks (W-30a): they find the places that are
free, and the sync ones get a child all the same."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from horsies import TaskHandle
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = [pytest.mark.e2e, pytest.mark.slow("thousands of rows of two kinds")]


async def send(task: Any, *args: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args)).unwrap()
    return handle


async def flood(rows: Rows, count: int) -> None:
    """So many sync tasks in front, all of one moment, in which they let async ones pass for the next ten seconds."""
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, priority) SELECT 's' || n, 'noop', 1 FROM generate_series(1, %s) n"
        " RETURNING NULL",
        count,
    )


async def count(rows: Rows, status: str) -> int:
    [found] = await rows.all("SELECT count(*) AS n FROM horsies_tasks WHERE task_name = 'noop' AND status = %s", status)
    return int(found["n"])


@contextlib.asynccontextmanager
async def held_by_an_async_task(basic: Any, traces: Path, **settings: Any) -> AsyncIterator[Any]:
    """A worker whose only child runs an async task, which ends when it is cancelled."""
    async with running_worker(basic.app, concurrency=3, **settings):
        long = await send(basic.anap, 300.0, "long")
        await eventually((traces / "long").exists)
        try:
            yield long
        finally:
            await basic.app.get_broker().cancel_task_async(long.task_id, include_running=True)


@pytest.mark.parametrize("many", [50, 20_000])
async def test_w30a_async_tasks_behind_more_sync_ones_than_a_claim_reads_find_their_places(
    basic: Any, rows: Rows, traces: Path, many: int
) -> None:
    async with held_by_an_async_task(basic, traces) as long:
        await flood(rows, many)
        for n in range(10):
            found = await send(basic.anap, 0.0, f"a{n}")
            assert (await found.get_async(timeout_ms=60_000)).is_ok()
        assert await rows.status(long.task_id) == "RUNNING"
        assert await count(rows, "COMPLETED") == 0, "no child is idle"
        await basic.app.get_broker().cancel_task_async(long.task_id, include_running=True)

        async def has_ended() -> bool:
            return await count(rows, "COMPLETED") >= 50

        await eventually(has_ended, 60, what="the sync tasks have the child")


async def test_w30a_sync_tasks_in_front_get_a_child_although_async_ones_never_end_coming(
    basic: Any, rows: Rows, traces: Path
) -> None:
    """They end one by one, and others wait, so that the child is never idle unless it is left to become idle."""
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, kwargs) SELECT 'a' || n, 'anap',"
        " json_build_object('seconds', 2 + n %% 7 * 0.5, 'name', 'busy')::text FROM generate_series(1, 600) n"
        " RETURNING NULL"
    )
    async with running_worker(basic.app, concurrency=3):
        await eventually(lambda: (traces / "busy").exists() and (traces / "busy").read_text().count("end") >= 3)
        await flood(rows, 50)
        await eventually(lambda: count(rows, "COMPLETED"), 60, what="a sync task has had the child")
        assert (traces / "busy").read_text().count("end") < 600
        await rows.all("DELETE FROM horsies_tasks WHERE status = 'PENDING' RETURNING NULL")


async def test_w30a_o31_both_sync_and_unknown_tasks_are_passed(basic: Any, rows: Rows, traces: Path) -> None:
    async with held_by_an_async_task(basic, traces):
        await flood(rows, 600)
        await rows.all(
            "INSERT INTO horsies_tasks (id, task_name, priority) SELECT 'u' || n, 'who', 1"
            " FROM generate_series(1, 600) n RETURNING NULL"
        )
        for n in range(3):
            found = await send(basic.anap, 0.0, f"a{n}")
            assert (await found.get_async(timeout_ms=60_000)).is_ok()
    [left] = await rows.all("SELECT count(*) AS n FROM horsies_tasks WHERE task_name = 'who' AND status = 'PENDING'")
    assert left["n"] == 600
