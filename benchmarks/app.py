"""The tasks that are measured."""

from __future__ import annotations

import asyncio
import os
import time

from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:./.horsies/bench")))


@app.task("noop")
def noop(n: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("anoop")
async def anoop(n: int) -> TaskResult[None, TaskError]:
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
