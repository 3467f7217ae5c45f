"""The tasks that are measured."""

from __future__ import annotations

import asyncio
import os
import time

from benchmarks.durations import PAUSE_S, REST_S
from horsies import AppConfig, Horsies, RetryPolicy, TaskError, TaskResult
from horsies.core.models.recovery import WorkerResilienceConfig

app = Horsies(
    AppConfig.for_database_url(
        os.environ.get("DATABASE_URL", "embedded:./.horsies/bench"),
        resilience=WorkerResilienceConfig(notify_poll_interval_ms=int(os.environ.get("POLL_MS", "5000"))),
    )
)
AGAIN = RetryPolicy.fixed([PAUSE_S], auto_retry_for=["WORKER_CRASHED"], jitter=False)


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


@app.task("hang_again", retry_policy=AGAIN)
def hang_again(n: int) -> TaskResult[None, TaskError]:
    """The same, and another worker tries it once more."""
    time.sleep(600)
    return TaskResult(ok=None)


@app.task("rest")
def rest(n: int) -> TaskResult[None, TaskError]:
    time.sleep(REST_S)
    return TaskResult(ok=None)


@app.task("listing")
def listing(n: int) -> TaskResult[list[int], TaskError]:
    """What a map goes over."""
    return TaskResult(ok=list(range(n)))
