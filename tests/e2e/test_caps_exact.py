"""Caps hold in every state that is committed, whatever happens to the workers (W-26), and what is in flight is counted
correctly all the while (D-56)."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.e2e.conftest import LIMITS
from tests.e2e.killing import kill_all
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

CAP, NARROW = 5, 2
# In one snapshot: what is there, and what is counted.
SEEN = """
    SELECT count(*), count(*) FILTER (WHERE queue_name = 'narrow'),
           (SELECT held FROM horsies_in_flight('*')), (SELECT held FROM horsies_in_flight('narrow'))
    FROM horsies_tasks WHERE claimed
"""


class Sampler:
    """Looks as often as it can, from another connection."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int, int, int]] = set()
        self._done = asyncio.Event()

    async def run(self, url: str) -> None:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            while not self._done.is_set():
                row = await (await conn.execute(SEEN)).fetchone()
                assert row is not None
                self.seen.add(row)
                await asyncio.sleep(0.001)

    def stop(self) -> None:
        self._done.set()


async def ended(rows: Rows, *, of: int, at_least: int) -> None:
    query = "SELECT count(*) AS n FROM horsies_tasks WHERE status IN ('COMPLETED', 'FAILED')"

    async def enough() -> bool:
        return bool((await rows.all(query))[0]["n"] >= min(of, at_least))

    await eventually(enough, 60, what=f"{at_least} of {of} tasks have ended")


async def test_w26_d56_caps_hold_while_workers_are_killed_and_stopped(
    limits: Any, rows: Rows, database_url: str
) -> None:
    module = limits(CLUSTER_CAP=str(CAP))
    count = 0
    for n in range(150):
        (await (module.narrow if n % 3 == 0 else module.free).send_async(0.01)).unwrap()
        count += 1
    sampler = Sampler()

    def start() -> WorkerProcess:
        return stack.enter_context(WorkerProcess(database_url, "--processes", "3", locator=f"{LIMITS}:app"))

    with ExitStack() as stack:
        workers = [start() for _ in range(3)]
        await ended(rows, of=count, at_least=10)
        looking = asyncio.create_task(sampler.run(database_url))
        kill_all(workers[0])
        await ended(rows, of=count, at_least=40)
        workers[1].process.send_signal(signal.SIGSTOP)
        workers.append(start())
        await ended(rows, of=count, at_least=70)
        workers[1].process.send_signal(signal.SIGCONT)
        kill_all(workers[2])
        await ended(rows, of=count, at_least=count)
        sampler.stop()
        await looking
        said = [worker.stop()[1] for worker in (workers[1], workers[3])]
    assert max(everything for everything, _, _, _ in sampler.seen) <= CAP
    assert max(narrow for _, narrow, _, _ in sampler.seen) <= NARROW
    assert [one for one in sampler.seen if one[:2] != one[2:]] == []
    assert len(sampler.seen) > 3, "something was seen"
    assert "count of tasks in flight" not in "".join(said), "nothing had to be corrected"
    (row,) = await rows.all("SELECT held FROM horsies_in_flight('*')")
    assert row["held"] == 0


async def test_w24_a_worker_learns_that_another_has_made_room_under_the_cap(limits: Any, rows: Rows) -> None:
    """The other one makes room by ending, and looks for nothing itself any more. Nobody rings for that."""
    module = limits()
    first = [(await module.narrow.send_async(1.0)).unwrap() for _ in range(2)]
    async with running_worker(module.app, app_locator=f"{LIMITS}:app", processes=2) as holding:
        for handle in first:
            await rows.until(handle.task_id, "RUNNING")
        waiting = [(await module.narrow.send_async(0.0)).unwrap() for _ in range(2)]
        async with running_worker(module.app, app_locator=f"{LIMITS}:app", processes=2):
            holding.request_stop()
            for handle in (*first, *waiting):
                assert (await handle.get_async(timeout_ms=20_000)).is_ok()
    gap = "SELECT extract(epoch FROM min(claimed_at) - (SELECT min(completed_at) FROM horsies_tasks))::float8 AS s"
    (row,) = await rows.all(f"{gap} FROM horsies_tasks WHERE id = ANY(%s)", [one.task_id for one in waiting])
    assert row["s"] >= 0
