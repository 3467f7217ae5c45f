"""Rows of schedules that nobody but an operator's hand can have written harm no other schedule (D-35, D-36)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horsies import Horsies, monitoring
from horsies.core.scheduler.plan import slot_task_id
from horsies.core.scheduler.service import Scheduler
from tests.scheduler_support import Schedules, check_once, make_app, schedule, scheduler_of

HOUR = timedelta(hours=1)
UNREADABLE = {
    "deep": '{"a": ' + "[" * 3_000 + "]" * 3_000 + "}",
    "large": '{"x": 1e5000}',
    "list": "[1]",
    "nothing": "null",
    "self": '{"self": 1, "task_name": "tick", "pattern": {"type": "hourly", "minute": 0}}',
    "self within": '{"task_name": "tick", "pattern": {"self": 1, "type": "hourly", "minute": 0}}',
    "wide": '{"task_name": "tick", "pattern": {"type": "interval", "seconds": 1e4000}}',
}


SET = {
    "last_run_at": "UPDATE horsies_schedule_state SET last_run_at = %s WHERE schedule_name = 'other' RETURNING 1",
    "next_run_at": "UPDATE horsies_schedule_state SET next_run_at = %s WHERE schedule_name = 'other' RETURNING 1",
}


@pytest.fixture
async def rows(database_url: str) -> Schedules:
    rows = Schedules(database_url)
    await rows.away_from_the_hour()
    return rows


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Horsies]:
    app = make_app(database_url, schedule("of the code"), schedule("other"))
    yield app
    await app.get_broker().close_async()


@pytest.fixture
async def scheduler(app: Horsies) -> AsyncIterator[Scheduler]:
    async with scheduler_of(app) as scheduler:
        await scheduler.check()
        yield scheduler


async def store(rows: Schedules, name: str, definition: str) -> None:
    """As by hand, with the number that tells of it."""
    insert = "INSERT INTO horsies_schedules (name, definition) VALUES (%s, %s::jsonb) RETURNING 1"
    await rows.all(insert, name, definition)
    await rows.all(
        "INSERT INTO horsies_meta AS m (key, value) VALUES ('schedules_version', '1')"
        " ON CONFLICT (key) DO UPDATE SET value = (m.value::bigint + 1)::text RETURNING 1"
    )


async def fires(scheduler: Scheduler, rows: Schedules, name: str = "of the code") -> bool:
    slot = await rows.move(await rows.hour(), name)
    await scheduler.check()
    return slot_task_id(name, slot) in {task["id"] for task in await rows.sent()}


async def test_d36_a_definition_that_cannot_be_read_is_one_bad_schedule(
    app: Horsies, scheduler: Scheduler, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    for name, definition in UNREADABLE.items():
        await store(rows, name, definition)
    await store(rows, "sound", '{"task_name": "tick", "pattern": {"type": "hourly", "minute": 0}}')
    await scheduler.check()
    await scheduler.check()
    assert await fires(scheduler, rows) and await fires(scheduler, rows, "sound")
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(said) == len(UNREADABLE), "each once"
    assert all(repr(name) in text for name, text in zip(sorted(UNREADABLE), said, strict=True))
    listed = {one.name: one for one in (await app.schedules.list_async()).ok_value}
    assert {name for name, one in listed.items() if one.problem is not None} == set(UNREADABLE)


async def test_m20_a_definition_that_cannot_be_read_is_hrs205(app: Horsies, rows: Schedules) -> None:
    for name, definition in UNREADABLE.items():
        await store(rows, name, definition)
    errors = app.check(live=True)
    assert {str(error.code) for error in errors} == {"HRS-205"}
    assert {error.message.partition(":")[0] for error in errors} == {f"schedule {name!r}" for name in UNREADABLE}


async def test_m45_monitoring_tells_of_rows_that_cannot_be_read(app: Horsies, rows: Schedules) -> None:
    await store(rows, "large", UNREADABLE["large"])
    await store(rows, "sound", '{"task_name": "tick"}')
    found = (await monitoring.list_schedules(app.get_broker())).ok_value
    assert {one.name: one.definition for one in found} == {"large": None, "sound": {"task_name": "tick"}}


@pytest.mark.parametrize("instead", ["", '"name": "another", '])
async def test_d36_a_definition_is_sent_by_the_name_of_its_row(
    scheduler: Scheduler, rows: Schedules, instead: str
) -> None:
    await store(rows, "row", "{" + instead + '"task_name": "tick", "pattern": {"type": "hourly", "minute": 0}}')
    await scheduler.check()
    assert await fires(scheduler, rows, "row")


async def test_d35_an_instant_that_python_has_none_for_stops_nobody(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    for instant in ("infinity", "10000-01-01", "9999-12-31 23:59:59Z", "-infinity", "0044-03-15 BC"):
        for column in SET:
            await _stops_nobody(app, scheduler, rows, column, instant)


async def _stops_nobody(app: Horsies, scheduler: Scheduler, rows: Schedules, column: str, instant: str) -> None:
    await rows.all("UPDATE horsies_schedule_state SET last_run_at = now(), next_run_at = now() + '1 h' RETURNING 1")
    await rows.all(SET[column], instant)
    listed = {one.name: one for one in (await app.schedules.list_async()).ok_value}
    assert set(listed) == {"of the code", "other"}
    told: Any = (await monitoring.take_snapshot(app.get_broker())).ok_value
    assert {one.name: one.lag_seconds > 0 for one in told.schedules} == {
        "of the code": False,
        "other": column == "next_run_at" and (instant[0] == "-" or "BC" in instant),
    }
    assert await fires(scheduler, rows)
    await check_once(app)


async def test_d35_infinity_lets_a_schedule_rest_until_it_is_changed(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    await rows.all(SET["next_run_at"], "infinity")
    await scheduler.check()
    await check_once(app)
    assert await rows.sent() == []
    resting = "SELECT schedule_name FROM horsies_schedule_state WHERE next_run_at = 'infinity'"
    assert await rows.all(resting) == [{"schedule_name": "other"}]
    listed = {one.name: one for one in (await app.schedules.list_async()).ok_value}
    assert listed["other"].next_run_at == datetime(9999, 12, 1, tzinfo=UTC) and listed["other"].upcoming == ()
    assert await fires(scheduler, rows, "other")


async def test_d35_a_full_counter_and_a_version_that_is_no_number_stop_nobody(
    app: Horsies, scheduler: Scheduler, rows: Schedules
) -> None:
    await rows.all("UPDATE horsies_schedule_state SET run_count = 2147483647 RETURNING 1")
    await rows.all(
        "INSERT INTO horsies_meta VALUES ('schedules_version', 'many')"
        " ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value RETURNING 1"
    )
    assert await fires(scheduler, rows) and await fires(scheduler, rows, "other")
