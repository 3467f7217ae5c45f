"""`horsies scheduler` as an operator starts it: its start, its end, a wrong clock and a database that goes away."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from psycopg import AsyncConnection

from horsies.core import embedded
from horsies.core.scheduler.plan import slot_task_id
from tests.e2e.cli_support import Started
from tests.e2e.test_wrong_clock import host
from tests.scheduler_support import HANGS, LOCATOR, Schedules, as_json, check_once, make_app, schedule
from tests.support import eventually
from tests.worker_support import ROOT

pytestmark = pytest.mark.e2e

EVERY_SECOND = {"pattern": {"type": "interval", "seconds": 1}}
SECOND = timedelta(seconds=1)
DAY = 86_400.0

Act: TypeAlias = Callable[[], Awaitable[None]]


@pytest.fixture
async def rows(database_url: str) -> Schedules:
    rows = Schedules(database_url)
    await rows.away_from_the_hour()
    return rows


def scheduler(url: str, *schedules: dict[str, Any], **env: str) -> Started:
    variables = {"SCHEDULES": as_json(*schedules), "NO_COLOR": "1", "PYTHONPATH": str(ROOT), **env}
    return Started("scheduler", LOCATOR, "--log-format", "json", cwd=ROOT, DATABASE_URL=url, **variables)


async def until_sent(rows: Schedules, count: int) -> None:
    async def enough() -> bool:
        return len(await rows.sent()) >= count

    await eventually(enough, 30, what=f"{count} tasks")


async def test_m03_s40_s42_it_sends_until_it_is_told_to_stop(database_url: str, rows: Schedules) -> None:
    with scheduler(database_url, {"name": "s", **EVERY_SECOND}) as process:
        process.until_it_says("scheduler ready: 1 schedule in the code")
        await until_sent(rows, 2)
        assert process.stop() == 0
    assert "scheduler stopped" in process.said
    state = await rows.state()
    assert {task["id"] for task in await rows.sent()} == {
        slot_task_id("s", state["last_run_at"] - n * SECOND) for n in range(state["run_count"])
    }


async def test_s42_a_check_that_is_under_way_is_finished(
    db: AsyncConnection[Any], database_url: str, rows: Schedules
) -> None:
    await check_once(make_app(database_url, schedule()))
    await rows.move(await rows.hour())
    async with db.transaction():
        await db.execute("LOCK horsies_tasks IN SHARE MODE")  # an insert has to wait
        with scheduler(database_url, {"name": "s"}) as process:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'relation' AND datname = current_database()"
            await eventually(lambda: rows.all(waiting), 30, what="the scheduler is in the middle of its check")
            process.send(signal.SIGTERM)
            await db.execute("COMMIT")
            assert await asyncio.to_thread(process.wait) == 0
            await db.execute("BEGIN")
    assert (await rows.state())["last_run_at"] == await rows.hour() and len(await rows.sent()) == 1


@pytest.mark.slow("waits out timeouts of the database")
async def test_s39_s42_arguments_that_hang_keep_neither_the_others_nor_the_end_back(
    database_url: str, rows: Schedules
) -> None:
    await rows.all(HANGS)
    with scheduler(database_url, {"name": "s", **EVERY_SECOND}) as process:
        await eventually(lambda: rows.state_is_overdue("hangs"), 30)
        begun = (await rows.state())["run_count"]
        await eventually(lambda: rows.runs("s", begun + 2), 30)
        assert await asyncio.to_thread(process.stop) == 0
    assert (await rows.state("hangs"))["run_count"] == 0


@pytest.mark.slow("waits out timeouts of the database")
async def test_s32_d62_a_scheduler_that_is_frozen_in_the_middle_loses_what_it_holds(
    db: AsyncConnection[Any], database_url: str, rows: Schedules
) -> None:
    every = {"name": "s", **EVERY_SECOND}
    with scheduler(database_url, every) as frozen:
        await until_sent(rows, 1)
        async with db.transaction():
            await db.execute("LOCK horsies_tasks IN SHARE MODE")
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'relation' AND datname = current_database()"
            await eventually(lambda: rows.all(waiting), 30)
            frozen.send(signal.SIGSTOP)
        with scheduler(database_url, every) as other:
            begun = (await rows.state())["run_count"]
            await eventually(lambda: rows.runs("s", begun + 2), 40)
            frozen.send(signal.SIGCONT)
            await asyncio.to_thread(frozen.until_it_says, "the database answers again")
            assert [await asyncio.to_thread(one.stop) for one in (frozen, other)] == [0, 0]


async def test_s43_the_clock_of_the_host_has_no_effect(database_url: str, rows: Schedules, tmp_path: Path) -> None:
    """One is a day ahead, the other a day behind, each with schedules of its own: what is due by the clock of the
    database is sent, and nothing else."""
    hosts = {"fast": host(tmp_path / "fast", DAY), "slow": host(tmp_path / "slow", -DAY)}
    names = [f"{name} {what}" for name in hosts for what in ("now", "tomorrow")]
    await check_once(make_app(database_url, *(schedule(name) for name in names)))
    for name in hosts:
        await rows.move(await rows.hour(), f"{name} now")
        await rows.move(await rows.hour(-12), f"{name} tomorrow")

    def started(name: str) -> Started:
        every = {"name": f"{name} every", "catch_up_missed": True, **EVERY_SECOND}
        own = ({"name": f"{name} {what}"} for what in ("now", "tomorrow"))
        return scheduler(database_url, *own, every, **hosts[name])

    with started("fast") as fast, started("slow") as slow:
        for process in (fast, slow):
            process.until_it_says("scheduler ready")

        async def both_have_sent() -> bool:
            return all(state["run_count"] for name, state in (await rows.states()).items() if "tomorrow" not in name)

        await eventually(both_have_sent, 30)
        assert [fast.stop(), slow.stop()] == [0, 0]
    now = await rows.now()
    for process, days in ((fast, 1), (slow, -1)):
        assert f"{now + timedelta(days=days):%Y-%m-%d}" in process.said, "the clock is right"
    states = await rows.states()
    assert len(states) == 6
    hour = await rows.hour()
    for name in hosts:
        assert (states[f"{name} now"]["last_run_at"], states[f"{name} now"]["run_count"]) == (hour, 1)
        assert (states[f"{name} tomorrow"]["next_run_at"], states[f"{name} tomorrow"]["run_count"]) == (
            hour + timedelta(hours=12),
            0,
        )
        assert abs(states[f"{name} every"]["last_run_at"] - now) < timedelta(minutes=5)
    for task in await rows.sent():
        assert abs(task["enqueued_at"] - now) < timedelta(minutes=5) > abs(task["sent_at"] - now)


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """A server of this test's own, to be stopped and started."""
    home = tmp_path / "pg"
    yield await asyncio.to_thread(embedded.ensure_running, home), home
    await asyncio.to_thread(embedded.stop, home)


async def outlives_an_outage(url: str, rows: Schedules, stop: Act, start: Act) -> None:
    every = {"name": "s", "catch_up_missed": True, **EVERY_SECOND}
    with scheduler(url, every) as process:
        await asyncio.to_thread(process.until_it_says, "scheduler ready")
        await until_sent(rows, 1)
        await stop()
        await asyncio.to_thread(process.until_it_says, "scheduler: database error, trying again")
        await start()
        await asyncio.to_thread(process.until_it_says, "the database answers again")
        begun = len(await rows.sent())
        await until_sent(rows, begun + 1)
        assert await asyncio.to_thread(process.stop) == 0
    state = await rows.state()
    slots = {slot_task_id("s", state["last_run_at"] - n * SECOND) for n in range(state["run_count"])}
    assert {task["id"] for task in await rows.sent()} == slots, "each slot of the outage as well"


@pytest.mark.slow("waits out timeouts of the database")
async def test_s40_w60_it_waits_for_a_database_that_is_stopped(own_server: tuple[str, Path]) -> None:
    url, home = own_server

    async def stop() -> None:
        await asyncio.to_thread(embedded.stop, home)

    async def start() -> None:
        assert await asyncio.to_thread(embedded.ensure_running, home) == url

    await outlives_an_outage(url, Schedules(url), stop, start)


@pytest.mark.slow("waits out timeouts of the database")
async def test_s40_s42_it_can_be_stopped_while_it_waits_for_its_database(tmp_path: Path) -> None:
    url = "postgresql://u:sesame@127.0.0.1:1/none"
    with scheduler(url, {"name": "s"}) as process:
        process.until_it_says("schema: database error")
        assert process.stop() == 0
    assert "sesame" not in process.said
