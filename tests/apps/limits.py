"""An app with several queues; its caps come from environment variables."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from horsies import AppConfig, CustomQueueConfig, Horsies, PostgresConfig, QueueMode, TaskError, TaskResult
from horsies.core.models.recovery import RecoveryConfig, WorkerResilienceConfig

CAP = os.environ.get("CLUSTER_CAP")
SHARE = os.environ.get("SHARE")
QUEUES = int(os.environ.get("MORE_QUEUES", "0"))
PREFETCH = int(os.environ.get("PREFETCH", "0"))

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="free", priority=50, max_concurrency=None, share=float(SHARE) if SHARE else None),
            CustomQueueConfig(name="urgent", priority=1, max_concurrency=None),
            CustomQueueConfig(name="narrow", priority=10, max_concurrency=2),
            CustomQueueConfig(name="stopped", priority=1, max_concurrency=0),
            *(CustomQueueConfig(name=f"q{n}", priority=100, max_concurrency=None) for n in range(QUEUES)),
        ],
        cluster_wide_cap=int(CAP) if CAP else None,
        prefetch_buffer=PREFETCH,
        claim_lease_ms=10_000 if PREFETCH else None,
        recovery=RecoveryConfig(claimer_heartbeat_interval_ms=1_000),
        resilience=WorkerResilienceConfig(notify_poll_interval_ms=1_000),
    )
)

Outcome = TaskResult[int, TaskError]


def work(queue: str, seconds: float) -> Outcome:
    with (Path(os.environ["TRACES"]) / "order").open("a") as file:
        file.write(f"{os.getpid()} {queue}\n")
    time.sleep(seconds)
    return TaskResult(ok=os.getpid())


@app.task("free", queue_name="free")
def free(seconds: float) -> Outcome:
    return work("free", seconds)


@app.task("urgent", queue_name="urgent")
def urgent(seconds: float) -> Outcome:
    return work("urgent", seconds)


@app.task("urgent_async", queue_name="urgent")
async def urgent_async(seconds: float) -> TaskResult[None, TaskError]:
    """While the file `hold` is there, or so long."""
    until = time.monotonic() + seconds
    while (Path(os.environ["TRACES"]) / "hold").exists() and time.monotonic() < until:
        await asyncio.sleep(0.01)
    return TaskResult(ok=None)


@app.task("narrow", queue_name="narrow")
def narrow(seconds: float) -> Outcome:
    return work("narrow", seconds)


@app.task("stopped", queue_name="stopped")
def stopped(seconds: float) -> Outcome:
    return work("stopped", seconds)
