"""An app whose workers sweep each other, with hooks that leave traces. No evidence but silence is used, and the reaper
waits for minutes, so that whatever is recovered in a test was swept. Some settings come from environment variables.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from horsies import (
    AppConfig,
    HookRegistry,
    Horsies,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    PostgresConfig,
    RecoveryConfig,
    TaskError,
    TaskResult,
    WorkerRecovered,
    WorkerRecoveryConfig,
    WorkerResilienceConfig,
)

hooks = HookRegistry()

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        prefetch_buffer=int(os.environ.get("PREFETCH", "0")),
        claim_lease_ms=int(os.environ.get("LEASE_MS", "60000")),
        recovery=RecoveryConfig(
            use_liveness_evidence=False,
            check_interval_ms=1_000,
            runner_heartbeat_interval_ms=1_000,
            claimer_heartbeat_interval_ms=1_000,
        ),
        worker_recovery=WorkerRecoveryConfig(
            enabled=os.environ.get("SWEEPING", "on") == "on",
            heartbeat_interval=1,
            sweep_interval=float(os.environ.get("SWEEP_INTERVAL", "1")),
            sweep_threshold=float(os.environ.get("SWEEP_THRESHOLD", "3")),
            recovery_delay=2,
        ),
        resilience=WorkerResilienceConfig(notify_poll_interval_ms=1_000),
    ),
    hooks=hooks,
)

Outcome = TaskResult[int, TaskError]


def trace(name: str, text: str = "") -> int:
    """One line in the file of this name; how many there are now."""
    path = Path(os.environ["TRACES"]) / name
    with path.open("a") as file:
        file.write(f"{os.getpid()} {text}\n")
    return len(path.read_text().splitlines())


@hooks.on(JobRecovery)
def policy(ctx: JobRecovery) -> JobRecoveryResult:
    trace("asked", f"{ctx.job.id} {ctx.worker_id} {ctx.previous_worker_id} {ctx.job.attempts}")
    if ctx.job.kwargs.get("answer") == "fail":
        return JobRecoveryResult.FailWithBackoff
    return JobRecoveryResult.Skip if ctx.job.kwargs.get("answer") == "skip" else JobRecoveryResult.Default


@hooks.on(JobInterrupted)
async def interrupted(event: JobInterrupted) -> None:
    trace("interrupted", f"{event.job.id} {event.worker_id}")


@hooks.on(WorkerRecovered)
def recovered(event: WorkerRecovered) -> None:
    trace("recovered", f"{event.worker_id} {event.dead_worker_ids} {event.jobs_recovered}")


@app.task("work")
def work(name: str, answer: str = "default") -> Outcome:
    """Takes long the first time."""
    time.sleep(60 if trace(name) == 1 else 0)
    return TaskResult(ok=os.getpid())


@app.task("quick")
def quick(number: int = 0) -> Outcome:
    return TaskResult(ok=number)
