"""The app of the scheduler's figure: `SCHEDULES` schedules, of which none, or some each second, are due."""

from __future__ import annotations

import os

from horsies import (
    AppConfig,
    CronSchedule,
    Horsies,
    IntervalSchedule,
    ScheduleConfig,
    SchedulePattern,
    TaskError,
    TaskResult,
    TaskSchedule,
)

COUNT = int(os.environ.get("SCHEDULES", "10000"))
BUSY = os.environ.get("BUSY") == "1"


def pattern(number: int) -> SchedulePattern:
    """Once a day each, at one minute or another; or, busy, every so many minutes, with instants of their own."""
    if BUSY:
        return IntervalSchedule(seconds=60 + number % 60)
    return CronSchedule.parse(f"{number % 60} {number // 60 % 24} * * *")


app = Horsies(
    AppConfig.for_database_url(
        os.environ.get("DATABASE_URL", "embedded:./.horsies/bench"),
        schedule=ScheduleConfig(
            schedules=[
                TaskSchedule(
                    name=f"schedule {n}", task_name="noop", args=(n,), pattern=pattern(n), timezone="Europe/Berlin"
                )
                for n in range(COUNT)
            ]
        ),
    )
)


@app.task("noop")
def noop(n: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)
