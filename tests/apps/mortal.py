"""An app whose workers die: by the test's hand, or by that of a task. Its settings come from environment variables;
without them the thresholds are the defaults.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from horsies import AppConfig, Horsies, PostgresConfig, RetryPolicy, TaskError, TaskResult
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig, WorkerResilienceConfig

THRESHOLD = os.environ.get("MORTAL_THRESHOLD_MS")
PREFETCH = int(os.environ.get("MORTAL_PREFETCH", "0"))
LEASE = os.environ.get("MORTAL_LEASE_MS")
LIMIT = os.environ.get("MORTAL_LIMIT")


def recovery() -> dict[str, Any]:
    if THRESHOLD is None:
        return {"use_liveness_evidence": os.environ.get("MORTAL_EVIDENCE") != "off"}
    names = ("running_stale_threshold_ms", "claimed_stale_threshold_ms", "finalizing_stale_threshold_ms")
    return {
        "use_liveness_evidence": os.environ.get("MORTAL_EVIDENCE") != "off",
        "check_interval_ms": 1_000,
        "runner_heartbeat_interval_ms": 1_000,
        "claimer_heartbeat_interval_ms": 1_000,
        **{name: int(THRESHOLD) for name in names},
    }


app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        prefetch_buffer=PREFETCH,
        claim_lease_ms=int(LEASE) if LEASE else None,
        recovery=RecoveryConfig(**recovery()),
        worker_recovery=(
            WorkerRecoveryConfig(max_recoveries_per_task=int(LIMIT), recovery_delay=0)
            if LIMIT
            else WorkerRecoveryConfig()
        ),
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000),
    )
)

Outcome = TaskResult[int, TaskError]
AGAIN = RetryPolicy.fixed([1, 1], auto_retry_for=["WORKER_CRASHED"], jitter=False)


def trace(name: str, text: str = "") -> int:
    """One line in the file of this name; how many there are now."""
    path = Path(os.environ["TRACES"]) / name
    with path.open("a") as file:
        file.write(f"{os.getpid()} {text}\n")
    return len(path.read_text().splitlines())


@app.task("hold")
def hold(name: str, seconds: float = 60) -> Outcome:
    """Until its time is over, or the test lets it go on."""
    trace(name, "begin")
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0 and not (Path(os.environ["TRACES"]) / f"{name}.go").exists():
        time.sleep(min(rest, 0.02))
    trace(name, "end")
    return TaskResult(ok=os.getpid())


@app.task("hold_once", retry_policy=AGAIN)
def hold_once(name: str) -> Outcome:
    times = trace(name, "begin")
    if times == 1:
        time.sleep(60)
    return TaskResult(ok=times)


@app.task("tick")
def tick(name: str) -> Outcome:
    with (Path(os.environ["TRACES"]) / "ticks").open("a") as file:
        file.write(f"{name}\n")
    return TaskResult(ok=os.getpid())


@app.task("kill_child", retry_policy=AGAIN)
def kill_child(name: str) -> Outcome:
    trace(name)
    os.kill(os.getpid(), signal.SIGKILL)
    return TaskResult(ok=0)


@app.task("kill_worker")
def kill_worker(name: str, after_s: float = 0) -> Outcome:
    """Harmless for a warm-up, from which the worker learns that it is short."""
    trace(name)
    if name.startswith("warm"):
        return TaskResult(ok=0)
    time.sleep(after_s)
    server = psutil.Process().parent()
    supervisor = server.parent() if server is not None else None
    assert supervisor is not None and "horsies" in " ".join(supervisor.cmdline())
    supervisor.kill()
    os.kill(os.getpid(), signal.SIGKILL)
    return TaskResult(ok=0)
