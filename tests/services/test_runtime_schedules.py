"""Schedules that are put in place, paused, triggered and removed while everything runs (D-36)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import Horsies, HourlySchedule, IntervalSchedule, TaskSchedule
from horsies.core.models.schedule.config import ScheduleErrorCode, ScheduleInfo, ScheduleSource
from horsies.core.scheduler.plan import slot_task_id
from horsies.core.scheduler.service import Scheduler
from horsies.core.schema.install import lock_key
from tests.scheduler_support import Report, Schedules, check_once, make_app, schedule, scheduler_of

HOUR = timedelta(hours=1)


@pytest.fixture
async def rows(database_url: str) -> Schedules:
    rows = Schedules(database_url)
    await rows.away_from_the_hour()
    return rows


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Horsies]:
    app = make_app(database_url, schedule("of the code"))
    yield app
    await app.get_broker().close_async()


@pytest.fixture
async def scheduler(app: Horsies) -> AsyncIterator[Scheduler]:
    async with scheduler_of(app) as scheduler:
        await scheduler.check()
        yield scheduler


def code_of(result: Any) -> ScheduleErrorCode:
    code = result.err_value.code
    assert isinstance(code, ScheduleErrorCode)
    return code


async def names(rows: Schedules) -> set[str]:
    return {task["id"] for task in await rows.sent()}


async def test_d36_a_schedule_is_honoured_at_the_next_check(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    assert (await app.schedules.put_async(schedule("nightly", kwargs={"number": 3}))).is_ok()
    await scheduler.check()
    assert (await rows.state("nightly"))["next_run_at"] == await rows.hour() + HOUR
    slot = await rows.move(await rows.hour(), "nightly")
    await scheduler.check()
    (task,) = await rows.sent()
    assert (task["id"], task["kwargs"]) == (slot_task_id("nightly", slot), '{"number":3}')
    (stored,) = await rows.all("SELECT name, paused, definition FROM horsies_schedules")
    assert (stored["name"], stored["paused"]) == ("nightly", False)
    assert TaskSchedule(**stored["definition"]) == schedule("nightly", kwargs={"number": 3}), "the fields of S-03"


async def test_d36_another_definition_counts_from_the_next_check_on(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    await app.schedules.put_async(schedule("s", kwargs={"number": 1}))
    await scheduler.check()
    await rows.move(await rows.hour(), "s")
    await app.schedules.put_async(schedule("s", kwargs={"number": 2}))
    await scheduler.check()
    assert [task["kwargs"] for task in await rows.sent()] == ['{"number":2}'], "the same pattern: its run was due"
    await rows.move(await rows.hour(3), "s")
    await app.schedules.put_async(schedule("s", pattern=HourlySchedule(minute=1)))
    await scheduler.check()
    assert len(await rows.sent()) == 1, "another pattern: what was missed is dropped"


async def test_d36_a_paused_schedule_does_not_fire_until_it_is_resumed(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    await app.schedules.put_async(schedule())
    await scheduler.check()
    await rows.move(await rows.hour(2))
    assert (await app.schedules.pause_async("s")).is_ok()
    await app.schedules.put_async(schedule(kwargs={"number": 1}))
    await scheduler.check()
    await check_once(app)
    assert await rows.sent() == [], "a new definition does not wake it"
    assert (await app.schedules.resume_async("s")).is_ok()
    await scheduler.check()
    assert await names(rows) == {slot_task_id("s", await rows.hour())}, "the rules for missed slots apply"


async def test_d36_nothing_fires_by_the_old_word_once_a_change_has_returned(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    """Between two checks the scheduler does not know of the change, and finds it under the lock."""
    for name in ("paused", "removed", "changed"):
        await app.schedules.put_async(schedule(name))
    await scheduler.check()
    for name in ("paused", "removed", "changed"):
        await rows.move(await rows.hour(), name)
    await app.schedules.pause_async("paused")
    await app.schedules.remove_async("removed")
    await app.schedules.put_async(schedule("changed", kwargs={"number": 5}))
    await scheduler._fire_due()
    assert await rows.sent() == []
    await scheduler.check()
    assert [task["kwargs"] for task in await rows.sent()] == ['{"number":5}']


async def test_d36_d62_a_change_waits_for_who_fires_just_now(
    db: AsyncConnection[Any], app: Horsies, rows: Schedules
) -> None:
    await app.schedules.put_async(schedule())
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key("horsies:schedule:s")])
        removing = asyncio.create_task(app.schedules.remove_async("s"))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
        while not await rows.all(waiting):
            await asyncio.sleep(0.01)
        assert not removing.done()
    assert (await removing).is_ok()


async def test_d36_s38_a_removed_schedule_keeps_its_state_and_begins_anew_when_it_is_put_back(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    await app.schedules.put_async(schedule())
    await scheduler.check()
    await rows.all("UPDATE horsies_schedule_state SET run_count = 4 RETURNING 1")
    assert (await app.schedules.remove_async("s")).is_ok()
    await scheduler.check()
    await rows.move(await rows.hour(5))
    await app.schedules.put_async(schedule())
    await scheduler.check()
    state = await rows.state()
    assert (state["next_run_at"], state["run_count"]) == (await rows.hour() + HOUR, 4)
    assert await rows.sent() == [], "what it would have missed meanwhile is not sent"


async def test_d36_trigger_now_sends_beside_the_runs(app: Horsies, scheduler: Scheduler, rows: Schedules) -> None:
    await app.schedules.put_async(schedule("stored", kwargs={"number": 9}))
    await app.schedules.pause_async("stored")
    await scheduler.check()
    before = await rows.state("of the code")
    sent = [(await app.schedules.trigger_now_async(name)).ok_value.task_id for name in ("of the code", "stored")]
    assert {task["id"]: task["kwargs"] for task in await rows.sent()} == {sent[0]: None, sent[1]: '{"number":9}'}
    after = await rows.state("of the code")
    assert (after["last_task_id"], after["run_count"]) == (sent[0], 1)
    assert (after["next_run_at"], after["last_run_at"]) == (before["next_run_at"], None)
    assert code_of(await app.schedules.trigger_now_async("nothing")) is ScheduleErrorCode.SCHEDULE_NOT_FOUND


async def test_d36_a_name_of_the_code_is_refused(app: Horsies, rows: Schedules) -> None:
    refused = await app.schedules.put_async(schedule("of the code"))
    assert code_of(refused) is ScheduleErrorCode.SCHEDULE_IN_CODE and "'of the code'" in refused.err_value.message
    for change in (app.schedules.remove_async, app.schedules.pause_async, app.schedules.resume_async):
        assert code_of(await change("of the code")) is ScheduleErrorCode.SCHEDULE_IN_CODE
        assert code_of(await change("nothing")) is ScheduleErrorCode.SCHEDULE_NOT_FOUND
    assert await rows.all("SELECT * FROM horsies_schedules") == []


async def test_d36_where_the_code_comes_later_the_code_wins_and_says_so(
    database_url: str, app: Horsies, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    await app.schedules.put_async(schedule("twice", kwargs={"number": 1}))
    async with scheduler_of(make_app(database_url, schedule("twice", kwargs={"number": 2}))) as scheduler:
        await scheduler.check()
        await rows.move(await rows.hour(), "twice")
        await app.schedules.put_async(schedule("other"))
        await scheduler.check()
    assert [task["kwargs"] for task in await rows.sent()] == ['{"number":2}']
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(said) == 1 and "'twice'" in said[0] and "ignored" in said[0]
    later = make_app(database_url, schedule("twice"))
    assert (await later.schedules.remove_async("twice")).is_ok(), "what is hidden can be cleared away"
    assert code_of(await later.schedules.remove_async("twice")) is ScheduleErrorCode.SCHEDULE_IN_CODE
    await later.get_broker().close_async()


async def test_s04_d36_what_cannot_work_is_refused_and_nothing_is_written(app: Horsies, rows: Schedules) -> None:
    for wrong, text in (
        (schedule(task_name="tock"), "there is no task 'tock'"),
        (schedule(kwargs={"nmber": 1}), "nmber"),
        (schedule(task_name="report"), "what"),
        (schedule(args=("three",)), "number"),
        (schedule(queue_name="other"), "QueueMode.CUSTOM"),
        (schedule("nul\0"), "NUL"),
        (schedule(task_name="report", args=(Report(title="a\0b"),)), "Unicode"),
        ("not a schedule", "TaskSchedule"),
    ):
        refused = await app.schedules.put_async(wrong)  # type: ignore[arg-type]
        assert code_of(refused) is ScheduleErrorCode.INVALID_SCHEDULE and text in refused.err_value.message, refused
    assert await rows.all("SELECT * FROM horsies_schedules") == []


async def test_d36_arguments_come_back_as_the_task_declares_them(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    args = (Report(title="z", pages=2),)
    await app.schedules.put_async(schedule(task_name="report", args=args, kwargs={"when": when}))
    await scheduler.check()
    await rows.move(await rows.hour())
    await scheduler.check()
    (task,) = await rows.sent()
    assert app.tasks["report"].codec.arguments.decode(task["args"], task["kwargs"]) == (args, {"when": when})


async def test_d36_a_row_that_cannot_be_read_harms_nobody_else(
    app: Horsies, scheduler: Scheduler, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    await app.schedules.put_async(schedule("good"))
    for name, definition in (("a list", "[]"), ("newer", '{"task_name": "tick", "colour": "red"}')):
        query = "INSERT INTO horsies_schedules (name, definition) VALUES (%s, %s::jsonb) RETURNING 1"
        await rows.all(query, name, definition)
    await app.schedules.put_async(schedule("unknown", task_name="tick"))
    await rows.all(
        "UPDATE horsies_schedules SET definition = jsonb_set(definition, '{task_name}', '\"tock\"') "
        "WHERE name = 'unknown' RETURNING 1"
    )
    await scheduler.check()
    for name in ("good", "unknown"):
        await rows.move(await rows.hour(), name)
    await scheduler.check()
    assert await names(rows) == {slot_task_id("good", await rows.hour())}
    said = "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR)
    assert all(word in said for word in ("'a list'", "'newer'", "'unknown'", "'tock'")) and "'good'" not in said
    assert (await rows.state("unknown"))["run_count"] == 0


async def test_d36_the_list_tells_of_both_kinds(app: Horsies, scheduler: Scheduler, rows: Schedules) -> None:
    await app.schedules.put_async(schedule("b", pattern=IntervalSchedule(minutes=5)))
    await app.schedules.put_async(schedule("c"))
    await app.schedules.pause_async("c")
    await rows.all("INSERT INTO horsies_schedules (name, definition) VALUES ('d', '{}') RETURNING 1")
    await scheduler.check()
    found: list[ScheduleInfo] = (await app.schedules.list_async()).ok_value
    assert [(one.name, one.source, one.is_active, one.is_paused) for one in found] == [
        ("b", ScheduleSource.DATABASE, True, False),
        ("c", ScheduleSource.DATABASE, False, True),
        ("d", ScheduleSource.DATABASE, False, False),
        ("of the code", ScheduleSource.CODE, True, False),
    ]
    every, paused, unusable, of_code = found
    first = (await rows.state("b"))["next_run_at"]
    assert every.upcoming == tuple(first + n * timedelta(minutes=5) for n in range(5))
    hour = await rows.hour()
    assert of_code.upcoming == tuple(hour + n * HOUR for n in range(1, 6))
    assert paused.upcoming == unusable.upcoming == () and unusable.problem is not None


def test_d36_every_method_has_a_blocking_twin(database_url: str) -> None:
    app = make_app(database_url)
    try:
        assert app.schedules.put(schedule()).is_ok()
        assert app.schedules.pause("s").is_ok() and app.schedules.resume("s").is_ok()
        assert app.schedules.trigger_now("s").ok_value.info().ok_value.task_name == "tick"
        assert [one.name for one in app.schedules.list().ok_value] == ["s"]
        assert app.schedules.remove("s").is_ok()
    finally:
        app.get_broker().close()


def test_d36_a_database_that_is_away_is_a_value() -> None:
    app = make_app("postgresql://u:sesame@127.0.0.1:1/none?connect_timeout=2")
    failed = app.schedules.put(schedule())
    assert code_of(failed) is ScheduleErrorCode.DB_OPERATION_FAILED and failed.err_value.retryable
    assert "sesame" not in repr(failed)
    app.get_broker().close()
