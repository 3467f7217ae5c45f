"""The tasks that are measured."""

from __future__ import annotations

import os

from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:./.horsies/bench")))


@app.task("noop")
def noop(n: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("anoop")
async def anoop(n: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)
