"""An app with the shortest thresholds there are, so that a test sees in seconds what takes minutes otherwise.

Evidence is off unless asked for: here silence alone decides. Tasks leave traces in the directory `TRACES`."""

from __future__ import annotations

import ctypes
import os
import resource
import threading
import time
from datetime import timedelta
from pathlib import Path

from horsies import AppConfig, Horsies, PostgresConfig, RetryPolicy, TaskError, TaskResult
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig, WorkerResilienceConfig

RUNNING_MS = int(os.environ.get("RUNNING_MS", "2000"))
CLAIMER_MS = int(os.environ.get("CLAIMER_MS", "1000"))
SWEEPING = os.environ.get("SWEEPING")

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        recovery=RecoveryConfig(
            check_interval_ms=int(os.environ.get("CHECK_MS", "1000")),
            runner_heartbeat_interval_ms=int(os.environ.get("RUNNER_MS", "1000")),
            claimer_heartbeat_interval_ms=CLAIMER_MS,
            running_stale_threshold_ms=RUNNING_MS,
            finalizing_stale_threshold_ms=RUNNING_MS,
            claimed_stale_threshold_ms=2 * CLAIMER_MS,
            use_liveness_evidence=os.environ.get("EVIDENCE") == "1",
        ),
        worker_recovery=WorkerRecoveryConfig(
            heartbeat_interval=timedelta(seconds=1),
            sweep_interval=timedelta(seconds=1),
            sweep_threshold=timedelta(seconds=float(SWEEPING)),
            recovery_delay=timedelta(0),
        )
        if SWEEPING
        else WorkerRecoveryConfig(),
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000),
    )
)

Outcome = TaskResult[int, TaskError]
AGAIN = RetryPolicy.fixed([1, 1, 1], auto_retry_for=["WORKER_CRASHED"], jitter=False)
ROOM = 8 << 20


def trace(name: str, text: str = "") -> None:
    """One line in the file of this name, with the time; appending a short line is atomic."""
    with (Path(os.environ["TRACES"]) / name).open("a") as file:
        file.write(f"{os.getpid()} {time.time():.3f} {text}\n")


@app.task("tick", retry_policy=AGAIN)
def tick(name: str, seconds: float) -> Outcome:
    """Say many times a second that this code runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        trace(name)
        time.sleep(0.02)
    trace(name, "end")
    return TaskResult(ok=os.getpid())


@app.task("until_open", retry_policy=AGAIN)
def until_open(name: str) -> Outcome:
    """Run until the file `<name>.open` is there."""
    trace(name, "begin")
    gate, limit = Path(os.environ["TRACES"]) / f"{name}.open", time.monotonic() + 60
    while not gate.exists() and time.monotonic() < limit:
        time.sleep(0.01)
    trace(name, "end")
    return TaskResult(ok=os.getpid())


@app.task("tick_once", retry_policy=AGAIN)
def tick_once(name: str, seconds: float) -> Outcome:
    """As `tick`, but the second attempt is short."""
    path = Path(os.environ["TRACES"]) / name
    return tick(name, 0.1 if path.exists() else seconds)


def _seconds_for_five_million() -> float:
    """Processor time, not the clock: on a busy machine that would make it too short."""
    began = time.process_time()
    sum(range(5_000_000))
    return time.process_time() - began


@app.task("grind")
def grind(seconds: float) -> Outcome:
    """Hold the interpreter with C code that works: no thread of this process can do anything meanwhile."""
    per_million = min(_seconds_for_five_million() for _ in range(3)) / 5
    trace("grind", "begin")
    sum(range(int(seconds / per_million * 1_000_000)))
    trace("grind", "end")
    return TaskResult(ok=1)


def _wake_often() -> None:
    while True:
        time.sleep(0.05)


@app.task("hold", retry_policy=AGAIN)
def hold(name: str, seconds: int) -> Outcome:
    """Hold the interpreter with C code that only waits, the first time; other threads want it too."""
    path = Path(os.environ["TRACES"]) / name
    is_first = not path.exists()
    for _ in range(4 if is_first else 0):
        threading.Thread(target=_wake_often, daemon=True).start()
    trace(name)
    if is_first:
        ctypes.PyDLL(None).sleep(seconds)
        trace(name, "end")
    return TaskResult(ok=1)


@app.task("where")
def where() -> Outcome:
    return TaskResult(ok=os.getpid())


@app.task("tick_time")
def tick_time(name: str, seconds: float) -> TaskResult[float, TaskError]:
    """As `tick`, and what the clock says at its end."""
    tick(name, seconds)
    return TaskResult(ok=time.time())


@app.task("swallow")
def swallow(text: str) -> Outcome:
    return TaskResult(ok=len(text))


@app.on_child_process_start
def live_in_a_small_room() -> None:
    """A child that may not grow, for payloads that are too large for it."""
    if os.environ.get("SMALL_ROOM") == "1":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
