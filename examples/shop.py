"""An app in one file: a task that is sent by the clock, retried when it fails, and observed.

Run it as `horsies worker examples/shop.py --with-scheduler`, or with worker and scheduler as processes of their own.
"""

import os
from datetime import time
from pathlib import Path

from horsies import (
    AppConfig,
    DailySchedule,
    Horsies,
    IntervalSchedule,
    RetryPolicy,
    ScheduleConfig,
    TaskError,
    TaskResult,
    TaskSchedule,
)

every_ten_seconds = TaskSchedule(
    name="rates",
    task_name="shop.fetch_rate",
    pattern=IntervalSchedule(seconds=10),
    kwargs={"currency": "EUR"},
)
every_morning = TaskSchedule(
    name="morning-report",
    task_name="shop.report",
    pattern=DailySchedule(time=time(6, 30)),
    timezone="Europe/Berlin",
    catch_up_missed=True,
)

app = Horsies(
    AppConfig.for_database_url(
        os.environ.get("DATABASE_URL", "embedded:.horsies/postgres"),
        schedule=ScheduleConfig(schedules=[every_ten_seconds, every_morning]),
    )
)


patient = RetryPolicy.fixed(
    [2, 5, 5, 10, 10, 10, 30, 30, 30], auto_retry_for=["BANK_CLOSED", "TASK_TIMEOUT", "WORKER_CRASHED"]
)


@app.task("shop.fetch_rate", retry_policy=patient, timeout_ms=10_000)
def fetch_rate(currency: str) -> TaskResult[float, TaskError]:
    if Path("closed").exists():  # stands for a bank that does not answer
        return TaskResult(err=TaskError(error_code="BANK_CLOSED", message="the bank does not answer"))
    return TaskResult(ok={"EUR": 1.0, "USD": 1.08}.get(currency, 0.0))


@app.task("shop.report")
def report() -> TaskResult[str, TaskError]:
    return TaskResult(ok="all is well")
