"""Letting time pass: what waits comes nearer, and the schedules fire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from horsies import (
    DailySchedule,
    Horsies,
    IntervalSchedule,
    ScheduleConfig,
    TaskSchedule,
    TaskStatus,
    WorkflowStatus,
)
from tests.app_support import an_app

SCHEDULES = [
    TaskSchedule(name="every day", task_name="report", pattern=DailySchedule(time=time(9, 0)), args=("daily",)),
    TaskSchedule(
        name="every hour",
        task_name="report",
        pattern=IntervalSchedule(hours=1),
        args=("hourly",),
        catch_up_missed=True,
        max_catch_up_runs=10,
    ),
]


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    with an_app(database_url) as made:
        yield made


def test_x13_what_is_scheduled_is_due_when_the_time_has_passed(app: Horsies) -> None:
    @app.task("note")
    def note(value: int) -> int:
        return value

    for hours in (3, 1, 2):
        note.schedule(timedelta(hours=hours), hours)
    assert app.testing.drain() == []
    app.testing.travel(timedelta(hours=1, seconds=1))
    assert [task.result.unwrap() for task in app.testing.drain()] == [1]
    app.testing.travel(timedelta(hours=2))
    assert [task.result.unwrap() for task in app.testing.drain()] == [2, 3]


async def test_x13_workflows_and_their_nodes_expire(app: Horsies) -> None:
    @app.task("step")
    def step() -> int:
        return 1

    spec = app.workflow("slow", [step.node()()], definition_key="testing.slow")
    handle = (await spec.start_async(good_until=datetime.now(UTC) + timedelta(minutes=5))).unwrap()
    await app.testing.travel_async(timedelta(minutes=6))
    ended = await app.testing.drain_async()
    assert (await handle.status_async()).unwrap() is WorkflowStatus.FAILED
    assert TaskStatus.COMPLETED not in [task.status for task in ended]


def test_x13_schedules_fire_for_the_time_that_has_passed(database_url: str) -> None:
    with an_app(database_url, schedule=ScheduleConfig(schedules=SCHEDULES)) as app:

        @app.task("report")
        def report(kind: str) -> str:
            return kind

        def sent() -> dict[str, int]:
            kinds = [task.result.unwrap() for task in app.testing.drain()]
            return {kind: kinds.count(kind) for kind in ("daily", "hourly")}

        app.testing.travel(timedelta(0))
        assert sent() == {"daily": 0, "hourly": 0}, "a schedule only begins when it is seen first"
        for _ in range(3):
            app.testing.travel(timedelta(days=1))
            assert sent() == {"daily": 1, "hourly": 24}
        app.testing.travel(timedelta(days=7))
        assert sent() == {"daily": 1, "hourly": 7 * 24}, "only one of them catches up"


@pytest.mark.parametrize(
    ("given", "text"), [(timedelta(-1), "time does not go back"), (60, r"travel\(timedelta\(hours=1\)\)")]
)
def test_x13_time_only_passes_forwards(app: Horsies, given: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        app.testing.travel(given)
