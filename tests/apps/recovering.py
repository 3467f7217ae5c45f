"""An app with worker recovery, quick heartbeats and hooks; those live in a module that the supervisor does not see."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from horsies import (
    AppConfig,
    Horsies,
    PostgresConfig,
    RecoveryConfig,
    RetryPolicy,
    TaskError,
    TaskResult,
    WorkerRecoveryConfig,
)
from horsies.core.models.recovery import WorkerResilienceConfig

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        recovery=RecoveryConfig(
            check_interval_ms=1_000,
            runner_heartbeat_interval_ms=1_000,
            claimer_heartbeat_interval_ms=1_000,
            running_stale_threshold_ms=2_000,
            claimed_stale_threshold_ms=2_000,
            finalizing_stale_threshold_ms=2_000,
        ),
        worker_recovery=WorkerRecoveryConfig(
            heartbeat_interval=timedelta(seconds=1),
            sweep_interval=timedelta(seconds=1),
            sweep_threshold=timedelta(seconds=2),
            recovery_delay=timedelta(hours=1),
        ),
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000),
    )
)
app.discover_tasks([str(Path(__file__).with_name("recovering_hooks.py"))])


def trace(name: str, text: str = "") -> None:
    with (Path(os.environ["TRACES"]) / name).open("a") as file:
        file.write(f"{os.getpid()} {text}\n")


async def _hold(hook: str) -> TaskResult[None, TaskError]:
    trace("held", hook)
    await asyncio.sleep(600)
    return TaskResult(ok=None)


@app.task("hold")
async def hold(hook: str) -> TaskResult[None, TaskError]:
    """Run until somebody puts an end to it; `hook` is what the recovery hooks shall do then."""
    return await _hold(hook)


@app.task(
    "hold_and_retry", retry_policy=RetryPolicy.fixed([3_600] * 3, auto_retry_for=["WORKER_CRASHED"], jitter=False)
)
async def hold_and_retry(hook: str) -> TaskResult[None, TaskError]:
    return await _hold(hook)


@app.task("add")
def add(a: int, b: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=a + b)
