"""Schedulers in bad company: other configurations, code of the app that hangs, a week of missed runs, others' locks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import time, timedelta
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from pydantic import BaseModel, model_serializer

from horsies import Horsies, IntervalSchedule, MonthlySchedule, TaskError, TaskResult, TaskSchedule
from horsies.core.db.connections import make_pool
from horsies.core.scheduler import fire, service
from horsies.core.scheduler.payloads import PreparationLimits
from horsies.core.scheduler.plan import slot_task_id
from horsies.core.schema.install import lock_key
from tests.scheduler_support import Schedules, make_app, schedule, scheduler_of
from tests.support import eventually

MONTHLY = MonthlySchedule(day=1, time=time(0))
RELEASED = Event()


class Slow(BaseModel):
    """Takes as long to write as the test wants."""

    n: int = 0

    @model_serializer
    def hang(self) -> dict[str, int]:
        RELEASED.wait(30)
        return {"n": self.n}


@pytest.fixture
async def rows(database_url: str) -> Schedules:
    rows = Schedules(database_url)
    await rows.away_from_the_hour()
    return rows


@pytest.fixture
def hanging() -> Iterator[Event]:
    RELEASED.clear()
    yield RELEASED
    RELEASED.set()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "horsies.scheduler" and r.levelno >= logging.WARNING]


def slow_app(url: str, *schedules: TaskSchedule) -> Horsies:
    app = make_app(url, *schedules)

    @app.task("slow")
    def slow(what: Slow) -> TaskResult[int, TaskError]:
        return TaskResult(ok=what.n)

    return app


async def test_s32_a_schedule_is_not_written_before_its_run(database_url: str, rows: Schedules) -> None:
    async with scheduler_of(make_app(database_url, schedule(pattern=MONTHLY))) as scheduler:
        await scheduler.check()
        before = await rows.state()
        await scheduler.check()
        assert await rows.state() == before


async def test_s39_arguments_that_take_for_ever_hold_up_nobody_else_and_their_slot_is_not_lost(
    database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture, hanging: Event
) -> None:
    bad = schedule("bad", task_name="slow", kwargs={"what": Slow()})
    app = slow_app(database_url, bad, schedule("early", pattern=IntervalSchedule(hours=1)), schedule("good"))
    async with scheduler_of(app, slice_s=0.1, limits=PreparationLimits(0.3, 0.6)) as scheduler:

        async def has_run(name: str) -> bool:
            await scheduler.check()
            return bool((await rows.state(name))["run_count"])

        await scheduler.check()
        slot = await rows.hour()
        await rows.move(slot - timedelta(hours=1), "early")
        await eventually(lambda: has_run("early"))
        for name in ("bad", "good", "early"):
            await rows.move(slot - timedelta(minutes=1), name)  # the payloads of two are asked for together
        await scheduler.check()
        assert (await rows.state("early"))["run_count"] == 2, "it has its payload"
        assert (await rows.state("bad"))["run_count"] == 0
        await eventually(lambda: has_run("good"))
        await eventually(lambda: warnings(caplog))
        assert "'bad'" in warnings(caplog)[0] and "longer than 0.3 s" in warnings(caplog)[0]
        state = await rows.state("bad")
        assert (state["run_count"], state["next_run_at"]) == (0, slot - timedelta(minutes=1))
        hanging.set()
        await eventually(lambda: has_run("bad"), 20)
    assert slot_task_id("bad", slot) in {task["id"] for task in await rows.sent()}


async def test_s36_catching_up_does_not_hold_up_what_comes_due_meanwhile(database_url: str, rows: Schedules) -> None:
    every = IntervalSchedule(seconds=1)
    late = [schedule(f"c{n}", pattern=every, catch_up_missed=True, max_catch_up_runs=10_000) for n in range(3)]
    async with scheduler_of(make_app(database_url, *late, schedule("plain"), interval=60), slice_s=0.05) as scheduler:
        await scheduler.check()
        for one in late:
            await rows.move(await rows.now(days=-7), one.name)
        await scheduler.check()
        before = len(await rows.sent())
        assert 0 < before < 15_000, "it comes back, so that it can be told to stop"
        slot = await rows.move(await rows.hour(), "plain")
        await scheduler.step()
        await scheduler.step()  # its payload may be made in the first one
        sent = await rows.sent()
        assert before + 1 < len(sent) < 25_000 and slot_task_id("plain", slot) in {task["id"] for task in sent}


async def test_s32_a_scheduler_that_is_frozen_in_the_middle_loses_its_locks(database_url: str) -> None:
    app = make_app(database_url, schedule())
    pool = make_pool(app.config.broker, name="horsies scheduler")
    asked = "SELECT current_setting('idle_in_transaction_session_timeout')"
    try:
        async with pool.connection() as conn:
            async with conn.transaction():
                await fire.fire(conn, [fire.Entry(schedule())], lambda entry: 1)
                assert await (await conn.execute(asked)).fetchone() == ("10s",)
            assert await (await conn.execute(asked)).fetchone() == ("0",), "the session is for others as well"
    finally:
        await pool.close()


async def test_s32_a_lost_session_leaves_everything_to_the_next_check(
    db: AsyncConnection[Any], database_url: str, rows: Schedules
) -> None:
    async with scheduler_of(make_app(database_url, schedule()), lock_ms=20_000) as scheduler:
        await scheduler.check()
        slot = await rows.move(await rows.hour())
        async with db.transaction():
            await db.execute("LOCK horsies_tasks IN SHARE MODE")
            check = asyncio.create_task(scheduler.check())
            waiting = (
                "SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity"
                " WHERE wait_event = 'relation' AND datname = current_database()"
            )
            await eventually(lambda: rows.all(waiting), 20)
            with pytest.raises(psycopg.Error):
                await check
        await scheduler.check()
    assert [task["id"] for task in await rows.sent()] == [slot_task_id("s", slot)]


async def test_s32_what_somebody_else_holds_for_long_is_told(
    db: AsyncConnection[Any], database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    async with scheduler_of(make_app(database_url, schedule())) as scheduler:
        await scheduler.check()
        await rows.move(await rows.hour())
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key("horsies:schedule:s")])
            for _ in range(15):
                await scheduler.check()
            assert warnings(caplog) == []
            for _ in range(5):
                await scheduler.check()
            assert len(warnings(caplog)) == 1 and "last 16 checks" in warnings(caplog)[0]
        await scheduler.check()
        assert (await rows.state())["run_count"] == 1 and scheduler._entries["s"].misses == 0


async def test_s39_schedules_that_have_to_wait_do_not_hide_the_others(
    db: AsyncConnection[Any], database_url: str, rows: Schedules, monkeypatch: pytest.MonkeyPatch, hanging: Event
) -> None:
    monkeypatch.setattr(service, "PAGE", 2)  # what one statement reads
    held = [schedule(f"a{n}") for n in range(3)]
    slow = [schedule(f"b{n}", task_name="slow", kwargs={"what": Slow()}) for n in range(3)]
    late = [
        schedule(f"c{n}", pattern=IntervalSchedule(seconds=1), catch_up_missed=True, max_catch_up_runs=2)
        for n in range(3)
    ]
    app = slow_app(database_url, *held, *slow, *late, schedule("good"))
    async with scheduler_of(app, slice_s=2.0, limits=PreparationLimits(0.1, 0.2)) as scheduler:
        await scheduler.check()
        before = await rows.hour() - timedelta(hours=1)
        for one in (*held, *slow, *late):
            await rows.move(before, one.name)
        await rows.move(await rows.hour(), "good")
        async with db.transaction():
            for one in held:
                await db.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(f"horsies:schedule:{one.name}")])
            await scheduler.check()
    assert {name: state["run_count"] for name, state in (await rows.states()).items() if state["run_count"]} == {
        "c0": 2, "c1": 2, "c2": 2, "good": 1,
    }  # fmt: skip


async def test_s31_s39_a_state_that_somebody_is_deleting_holds_up_nobody(
    db: AsyncConnection[Any], database_url: str, rows: Schedules
) -> None:
    async with scheduler_of(make_app(database_url, schedule("gone"), schedule("good")), lock_ms=5_000) as scheduler:
        await scheduler.check()
        for name in ("gone", "good"):
            await rows.move(await rows.hour(), name)
        async with db.transaction(force_rollback=True):
            await db.execute("DELETE FROM horsies_schedule_state WHERE schedule_name = 'gone'")
            async with asyncio.timeout(4):
                await scheduler.check()
            assert (await rows.state("good"))["run_count"] == 1
        await scheduler.check()
        assert (await rows.state("gone"))["run_count"] == 1


async def test_s31_s39_a_state_that_somebody_is_inserting_is_alone_with_its_problem(
    db: AsyncConnection[Any], database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(database_url, *(schedule(f"s{n}") for n in range(4)))
    async with scheduler_of(app, lock_ms=100) as scheduler:
        async with db.transaction(force_rollback=True):
            await db.execute("INSERT INTO horsies_schedule_state (schedule_name, updated_at) VALUES ('s2', now())")
            await scheduler.check()
            assert sorted(await rows.states()) == ["s0", "s1", "s3"]
            assert len(warnings(caplog)) == 1 and "'s2'" in warnings(caplog)[0]
        await scheduler.check()
    assert sorted(await rows.states()) == ["s0", "s1", "s2", "s3"]
