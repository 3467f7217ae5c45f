"""What workers cost while there is nothing to do, and that what they share is done although one of them dies."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.recovery import start_journal
from tests.factories import given_heartbeat, given_task
from tests.network_support import network
from tests.recovery_support import LONG_AGO
from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess

pytestmark = pytest.mark.e2e

PLAIN = f"{ROOT / 'tests' / 'apps' / 'plain.py'}:app"
OURS = "datname = current_database() AND application_name LIKE 'horsies%'"
SESSIONS = f"SELECT count(*) FROM pg_stat_activity WHERE {OURS}"  # noqa: S608
SETTLED_S = 32.0  # the first retention of a worker comes half a minute after its start
WINDOW_S = 55.0  # with two ticks of the reaper at most


async def sessions(db: AsyncConnection[Any]) -> int:
    return int((await (await db.execute(SESSIONS.encode())).fetchall())[0][0])


@pytest.mark.slow("watches an idle worker for a minute and a half")
async def test_w73_an_idle_worker_has_three_connections_and_makes_less_than_a_statement_a_second(
    database_url: str, rows: Rows, db: AsyncConnection[Any], tmp_path: Path
) -> None:
    """Also after it has been busy. Workers that start or stop on its host would make it look for news, and those of
    other tests do that all the time: so it has a place for start journals of its own."""
    async with network(database_url) as net:
        with WorkerProcess(net.url, locator=PLAIN, env={start_journal.VARIABLE: str(tmp_path)}) as worker:
            await eventually(lambda: rows.all("SELECT FROM horsies_worker_states"), 60, what="the worker serves")
            for _ in range(40):
                await given_task(db, task_name="add")  # it fails: there are no arguments
            await eventually(
                lambda: rows.all("SELECT FROM horsies_tasks HAVING count(*) FILTER (WHERE status = 'FAILED') = 40"), 60
            )

            async def is_at_rest() -> bool:
                return await sessions(db) <= 3

            await eventually(is_at_rest, 30, what="no connection that is not needed")
            await asyncio.sleep(SETTLED_S)
            net.statements.clear()
            begun = monotonic()
            seen: list[int] = []
            while (passed := monotonic() - begun) < WINDOW_S:
                seen.append(await sessions(db))
                await asyncio.sleep(1)  # the time that is measured
            made = list(net.statements)
            code, said = await asyncio.to_thread(worker.stop)
    assert code == 0, said
    assert 10 < len(made) < passed, "\n".join(" ".join(statement.split())[:100] for statement in made)
    assert sorted(seen)[len(seen) // 2] == 3


MARKS = """SELECT pid, worker_id, (metadata ->> 'reaped_at')::float8 AS at FROM horsies_workers
           ORDER BY at DESC NULLS LAST"""


async def test_r15_l07_what_a_fleet_shares_goes_on_when_the_worker_whose_turn_it_was_is_killed(
    database_url: str, rows: Rows, db: AsyncConnection[Any]
) -> None:
    with ExitStack() as fleet:
        started = [fleet.enter_context(WorkerProcess(database_url)) for _ in range(3)]

        async def all_are_there() -> bool:
            marks = await rows.all(MARKS)
            return len(marks) == 3 and all(mark["at"] for mark in marks)

        await eventually(all_are_there, 90, what="each has made its first tick")
        begun = max(mark["at"] for mark in await rows.all(MARKS))

        async def next_turn() -> dict[str, Any] | None:
            [newest, *_] = await rows.all(MARKS)
            return newest if newest["at"] > begun else None

        turn = await eventually(next_turn, 30, what="somebody makes the next tick for all")
        assert turn is not None
        os.kill(turn["pid"], signal.SIGKILL)
        overdue = await given_task(db, good_until=LONG_AGO, queue_name="nobody serves this")
        await given_heartbeat(db, "a task", "runner", sent_at=LONG_AGO)
        await rows.until(overdue, "EXPIRED")
        await eventually(
            lambda: rows.all("SELECT WHERE NOT EXISTS (SELECT FROM horsies_heartbeats WHERE task_id = 'a task')"),
            what="old heartbeats are deleted at the ticks",
        )
        left = [worker for worker in started if worker.process.pid != turn["pid"]]
        assert len(left) == 2 and all(worker.process.poll() is None for worker in left)
