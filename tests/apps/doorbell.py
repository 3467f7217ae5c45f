"""Two queues and a doorbell: its mode and the pause between two polls come from environment variables."""

from __future__ import annotations

import os
import time
from pathlib import Path

from horsies import AppConfig, CustomQueueConfig, Horsies, PostgresConfig, QueueMode, RetryPolicy, TaskError, TaskResult
from horsies.core.models.recovery import RecoveryConfig, WorkerResilienceConfig

app = Horsies(
    AppConfig(
        broker=PostgresConfig(
            database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none"),
            notify=os.environ.get("NOTIFY", "always"),
        ),
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="left", priority=1, max_concurrency=None),
            CustomQueueConfig(name="right", priority=2, max_concurrency=None),
        ],
        recovery=RecoveryConfig(
            check_interval_ms=1_000, runner_heartbeat_interval_ms=1_000, claimer_heartbeat_interval_ms=1_000
        ),
        resilience=WorkerResilienceConfig(
            db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=int(os.environ.get("POLL_MS", "1000"))
        ),
    )
)

Outcome = TaskResult[int, TaskError]
AGAIN = RetryPolicy.fixed([1, 1], auto_retry_for=["FLAKY"], jitter=False)
AFTER_A_DEATH = RetryPolicy.fixed([4], auto_retry_for=["WORKER_CRASHED"], jitter=False)


def trace(name: str) -> int:
    """Leave a trace; how many there are now."""
    path = Path(os.environ["TRACES"]) / name
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len(path.read_text().splitlines())


@app.task("note", queue_name="left")
def note(name: str) -> Outcome:
    return TaskResult(ok=trace(name))


@app.task("note_right", queue_name="right")
def note_right(name: str) -> Outcome:
    return TaskResult(ok=trace(name))


@app.task("fail", queue_name="left")
def fail(name: str) -> Outcome:
    trace(name)
    return TaskResult(err=TaskError(error_code="AS_TOLD", message="as told"))


@app.task("flaky", queue_name="left", retry_policy=AGAIN)
def flaky(name: str) -> Outcome:
    """Works the second time."""
    times = trace(name)
    if times == 1:
        return TaskResult(err=TaskError(error_code="FLAKY", message="not yet"))
    return TaskResult(ok=times)


@app.task("hold", queue_name="left")
def hold(name: str) -> Outcome:
    """Runs until there is a file `<name>.go`."""
    times = trace(name)
    while not (Path(os.environ["TRACES"]) / f"{name}.go").exists():
        time.sleep(0.01)
    return TaskResult(ok=times)


@app.task("hold_once", queue_name="left", retry_policy=AFTER_A_DEATH)
def hold_once(name: str) -> Outcome:
    """Works the second time; the first time it runs until its worker is killed."""
    times = trace(name)
    if times == 1:
        time.sleep(600)
    return TaskResult(ok=times)
