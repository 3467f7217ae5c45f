"""Apps with schedules, and schedulers that are checked by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from horsies import AppConfig, Horsies, HourlySchedule, ScheduleConfig, TaskError, TaskResult, TaskSchedule
from horsies.core.db.connections import BY_INDEX, make_pool
from horsies.core.scheduler.payloads import USUAL, LocalPreparer, PreparationLimits
from horsies.core.scheduler.service import Scheduler
from tests.support import eventually
from tests.worker_support import ROOT, Rows

APP = ROOT / "tests" / "apps" / "scheduled.py"
LOCATOR = f"{APP}:app"
HOURLY = {"type": "hourly", "minute": 0}
HANGS = """
INSERT INTO horsies_schedules (name, definition) VALUES (
    'hangs', '{"name": "hangs", "task_name": "slow", "kwargs": {"what": {"n": 1}}, "catch_up_missed": true,
               "pattern": {"type": "interval", "seconds": 1}}') RETURNING 1
"""  # in tests/apps/scheduled.py


class Report(BaseModel):
    title: str
    pages: int = 1


def make_app(url: str, *schedules: TaskSchedule, interval: int = 1, **config: Any) -> Horsies:
    """An app with two tasks."""
    schedule = ScheduleConfig(check_interval_seconds=interval, schedules=list(schedules))
    app = Horsies(AppConfig.for_database_url(url, schedule=schedule, **config))
    queue = {"queue_name": app.config.custom_queues[0].name} if app.config.custom_queues else {}

    @app.task("tick", **queue)
    def tick(number: int = 0) -> TaskResult[int, TaskError]:
        return TaskResult(ok=number)

    @app.task("report", **queue)
    def report(what: Report, when: datetime | None = None) -> TaskResult[str, TaskError]:
        return TaskResult(ok=what.title)

    return app


def schedule(name: str = "s", **fields: Any) -> TaskSchedule:
    """Hourly, unless told otherwise."""
    return TaskSchedule(**{"name": name, "task_name": "tick", "pattern": HourlySchedule(minute=0), **fields})


def as_json(*schedules: dict[str, Any]) -> str:
    """For the variable `SCHEDULES` of tests/apps/scheduled.py."""
    return json.dumps([{"task_name": "tick", "pattern": HOURLY, **one} for one in schedules])


@asynccontextmanager
async def scheduler_of(
    app: Horsies, *, slice_s: float = 30.0, limits: PreparationLimits = USUAL, lock_ms: int = 2_000
) -> AsyncIterator[Scheduler]:
    """A scheduler of the app's schedules that does nothing by itself: `check()` is one check, which takes its time."""
    assert app.config.schedule is not None
    pool = make_pool(app.config.broker, name="horsies scheduler", options=f"{BY_INDEX} -c lock_timeout={lock_ms}")
    scheduler = Scheduler(app.config.schedule, pool, LocalPreparer(app), slice_s=slice_s, limits=limits)
    try:
        yield scheduler
    finally:
        scheduler.close()
        await pool.close()


async def check_once(app: Horsies) -> None:
    """One check of a scheduler that has just started."""
    async with scheduler_of(app) as scheduler:
        await scheduler.check()


class Schedules(Rows):
    """Rows, and the ways to move a schedule in time."""

    async def state(self, name: str = "s") -> dict[str, Any]:
        (row,) = await self.all("SELECT * FROM horsies_schedule_state WHERE schedule_name = %s", name)
        return row

    async def states(self) -> dict[str, dict[str, Any]]:
        return {row["schedule_name"]: row for row in await self.all("SELECT * FROM horsies_schedule_state")}

    async def move(self, next_run_at: datetime, name: str = "s") -> datetime:
        """Set the next run of a schedule."""
        query = "UPDATE horsies_schedule_state SET next_run_at = %s WHERE schedule_name = %s RETURNING 1"
        assert await self.all(query, next_run_at, name)
        return next_run_at

    async def state_is_overdue(self, name: str) -> bool:
        """Has its next run been due for a second?"""
        state = (await self.states()).get(name)
        return state is not None and state["next_run_at"] < await self.now(seconds=-1)

    async def runs(self, name: str, more_than: int = 0) -> bool:
        """Has it been sent more often than so?"""
        return (await self.states()).get(name, {"run_count": 0})["run_count"] > more_than

    async def sent(self) -> list[dict[str, Any]]:
        """The tasks, in the order in which they would be claimed."""
        return await self.all("SELECT * FROM horsies_tasks ORDER BY priority, enqueued_at, id")

    async def now(self, **later: float) -> datetime:
        """By the database's clock."""
        (row,) = await self.all("SELECT now() AS now")
        now = row["now"]
        assert isinstance(now, datetime)
        return now + timedelta(**later)

    async def hour(self, ago: int = 0) -> datetime:
        """The last full hour of the database's clock, or one before it."""
        return (await self.now(hours=-ago)).replace(minute=0, second=0, microsecond=0)

    async def away_from_the_hour(self) -> None:
        """So that the test does not begin in one hour and end in the next."""

        async def is_far() -> bool:
            now = await self.now()
            return (now.minute, now.second) < (59, 40)

        await eventually(is_far, 30, every=1)
