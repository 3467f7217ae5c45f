"""The tasks that are measured. The settings come from the environment, as JSON: each worker may have others."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from benchmarks import APP_SETTINGS
from horsies import (
    AppConfig,
    CronSchedule,
    Horsies,
    IntervalSchedule,
    PostgresConfig,
    ScheduleConfig,
    SchedulePattern,
    TaskError,
    TaskResult,
    TaskSchedule,
)


def schedules(count: int, *, are_busy: bool) -> ScheduleConfig:
    """Once a day each, at one minute or another; or, busy, each about every 90 s."""

    def pattern(n: int) -> SchedulePattern:
        if are_busy:
            return IntervalSchedule(seconds=60 + n % 60)
        return CronSchedule.parse(f"{n % 60} {n // 60 % 24} * * *")

    every = [
        TaskSchedule(name=f"schedule {n}", task_name="noop", args=(n,), pattern=pattern(n), timezone="Europe/Berlin")
        for n in range(count)
    ]
    return ScheduleConfig(schedules=every)


settings: dict[str, Any] = json.loads(os.environ.get(APP_SETTINGS, "{}"))
if count := settings.pop("schedules", 0):
    settings["schedule"] = schedules(count, are_busy=settings.pop("are_busy"))
url = os.environ.get("DATABASE_URL", "embedded:./.horsies/bench")
broker = PostgresConfig(database_url=url, notify=settings.pop("notify", "always"))
app = Horsies(AppConfig(broker=broker, **settings))


@app.task("noop")
def noop(n: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("nap")
async def nap(n: int) -> TaskResult[None, TaskError]:
    await asyncio.sleep(0.05)
    return TaskResult(ok=None)


@app.task("clock")
def clock(n: int) -> TaskResult[int, TaskError]:
    """When its first line ran, in nanoseconds of the system's clock."""
    return TaskResult(ok=time.time_ns())


@app.task("hang")
def hang(n: int) -> TaskResult[None, TaskError]:
    """Lasts until its worker is killed."""
    time.sleep(600)
    return TaskResult(ok=None)


@app.task("listing")
def listing(n: int) -> TaskResult[list[int], TaskError]:
    """What a map goes over."""
    return TaskResult(ok=list(range(n)))
