"""An app with schedules, which the test gives as JSON in `SCHEDULES`; `INTERVAL` is the check interval."""

from __future__ import annotations

import json
import os
import time

from pydantic import BaseModel, model_validator

from horsies import AppConfig, Horsies, PostgresConfig, ScheduleConfig, TaskError, TaskResult, TaskSchedule
from horsies.core.models.recovery import WorkerResilienceConfig

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000),
        schedule=ScheduleConfig(
            check_interval_seconds=int(os.environ.get("INTERVAL", "1")),
            schedules=[TaskSchedule(**one) for one in json.loads(os.environ.get("SCHEDULES", "[]"))],
        ),
    )
)


class Report(BaseModel):
    title: str
    pages: int = 1


class Slow(BaseModel):
    """Its arguments take for ever to read."""

    n: int = 0

    @model_validator(mode="after")
    def hang(self) -> Slow:
        time.sleep(3600)
        return self


@app.task("tick")
def tick(number: int = 0) -> TaskResult[int, TaskError]:
    return TaskResult(ok=number)


@app.task("report")
def report(what: Report) -> TaskResult[str, TaskError]:
    return TaskResult(ok=what.title * what.pages)


@app.task("slow")
def slow(what: Slow) -> TaskResult[int, TaskError]:
    return TaskResult(ok=what.n)
