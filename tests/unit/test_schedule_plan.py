"""What is due of a schedule, and what becomes of its state: plain values, and the time is given."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from horsies import (
    BothDays,
    CronEnumValues,
    CronSchedule,
    CronValues,
    HourlySchedule,
    IntervalSchedule,
    Month,
    TaskSchedule,
    Weekday,
)
from horsies.core.scheduler.plan import Begin, Fire, config_hash, decide, slot_task_id
from horsies.core.store.schedules import ScheduleState
from tests.each import each

NOW = datetime(2026, 3, 10, 12, 30, tzinfo=UTC)


def schedule(**fields: Any) -> TaskSchedule:
    return TaskSchedule(**{"name": "s", "task_name": "tick", "pattern": HourlySchedule(minute=0), **fields})


def state(of: TaskSchedule, next_run_at: datetime | None, **fields: Any) -> ScheduleState:
    known = {"last_run_at": None, "last_task_id": None, "run_count": 0, "config_hash": config_hash(of)}
    return ScheduleState(name=of.name, next_run_at=next_run_at, **{**known, **fields})


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 10, hour, minute, tzinfo=UTC)


def test_s35_a_year_of_missed_seconds_costs_one_step() -> None:
    one = schedule(pattern=IntervalSchedule(seconds=1))
    step = decide(one, state(one, NOW - timedelta(days=365, microseconds=1)), NOW)
    assert step == Fire((NOW - timedelta(microseconds=1),), NOW + timedelta(seconds=1, microseconds=-1))


def test_s36_every_missed_slot_in_order_up_to_the_limit() -> None:
    one = schedule(catch_up_missed=True, max_catch_up_runs=3)
    assert decide(one, state(one, at(10)), NOW) == Fire((at(10), at(11), at(12)), at(13)), "down for three hours"
    assert decide(one, state(one, at(8)), NOW) == Fire((at(8), at(9), at(10)), at(11)), "the rest in later checks"
    assert decide(one, state(one, at(8)), NOW, most=2) == Fire((at(8), at(9)), at(10))
    assert decide(one, state(one, at(8)), NOW, most=9) == Fire((at(8), at(9), at(10)), at(11))


def test_s21_s33_an_interval_is_counted_from_slot_to_slot_and_does_not_drift() -> None:
    one = schedule(pattern=IntervalSchedule(minutes=7))
    slot = at(12, 1) + timedelta(microseconds=5)
    late = decide(one, state(one, slot), NOW)
    assert late == Fire((slot + timedelta(minutes=28),), slot + timedelta(minutes=35))
    every = schedule(pattern=IntervalSchedule(minutes=7), catch_up_missed=True)
    steps = decide(every, state(every, slot), NOW)
    assert isinstance(steps, Fire) and steps.slots == tuple(slot + n * timedelta(minutes=7) for n in range(5))


def test_s37_the_hash_is_the_sha256_of_key_sorted_json() -> None:
    described = {
        "fields": {"minute": 0, "second": 0, "type": "hourly"},
        "pattern": "HourlySchedule",
        "timezone": "UTC",
    }
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    assert config_hash(schedule()) == hashlib.sha256(text.encode()).hexdigest()


def test_s34_the_id_of_a_slot_is_a_uuid_that_begins_with_its_time_and_is_always_the_same() -> None:
    slot = at(12)
    task_id = slot_task_id("nightly", slot)
    made = uuid.UUID(task_id)
    assert (made.version, made.variant) == (8, uuid.RFC_4122) and made.int >> 80 == int(slot.timestamp() * 1000)
    days = [slot_task_id(name, slot + n * timedelta(days=1)) for n in range(9) for name in ("z", "a")]
    assert [task_id[:13] for task_id in sorted(days)] == [task_id[:13] for task_id in days], "by time, not by name"
    assert slot_task_id("nightly", slot.astimezone(tz=None)) == task_id, "whatever zone the instant is written in"
    others = {slot_task_id("nightly", slot + timedelta(microseconds=1)), slot_task_id("nightlz", slot)}
    assert task_id not in others and len(others) == 2


def test_s24_a_schedule_without_a_next_run_has_none() -> None:
    days = BothDays(day_of_month=[CronValues(values=[29])], day_of_week=[CronEnumValues(values=[Weekday.MONDAY])])
    leap = CronSchedule(
        minute=[CronValues(values=[0])],
        hour=[CronValues(values=[0])],
        month=[CronEnumValues(values=[Month.FEBRUARY])],
        day=days,
    )
    assert decide(schedule(pattern=leap), None, NOW) == Begin(None), "29 February is a Monday in 2044"


ON_THE_WAY = ("plan", "calendar", "fire", "service", "payloads")
BEFOREHAND = "schedule_problems"  # it checks a schedule before there is a run
CLOCKS = {"now", "utcnow", "today", "time", "time_ns", "clock_gettime", "localtime", "gmtime"}


@each("name", [*(f"scheduler.{name}" for name in ON_THE_WAY), "store.schedules"])
def test_s43_nothing_on_the_way_to_a_run_reads_the_clock_of_the_host(name: str) -> None:
    tree = ast.parse(inspect.getsource(importlib.import_module(f"horsies.core.{name}")))
    tree.body = [node for node in tree.body if getattr(node, "name", "") != BEFOREHAND]
    called = {
        getattr(node.func, "attr", getattr(node.func, "id", None))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    assert not called & CLOCKS and imported <= {"monotonic", "perf_counter"}


@each("missed", [1, 59, 60, 1439, 1440, 100_000])
def test_s35_the_latest_slot_is_the_one_that_walking_finds(missed: int) -> None:
    one = schedule(pattern=CronSchedule.parse("*/7 * * * *"))
    first = NOW - timedelta(minutes=missed)
    found = decide(one, state(one, first), NOW)
    walked = [t for n in range(missed + 1) if (t := first + timedelta(minutes=n)).minute % 7 == 0 and t <= NOW]
    assert isinstance(found, Fire) and found.slots == ((walked or [first])[-1],)
