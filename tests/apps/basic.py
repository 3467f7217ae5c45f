"""The app that the worker tests serve. Tasks leave traces in the directory `TRACES`, so that a test sees what ran."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

from horsies import AppConfig, Horsies, PostgresConfig, RetryPolicy, TaskError, TaskResult
from horsies.core.models.recovery import RecoveryConfig, WorkerResilienceConfig

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        recovery=RecoveryConfig(
            check_interval_ms=1_000,
            runner_heartbeat_interval_ms=1_000,
            claimer_heartbeat_interval_ms=1_000,
            worker_state_snapshot_interval_ms=1_000,
        ),
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000),
    )
)

Outcome = TaskResult[int, TaskError]
AGAIN = RetryPolicy.fixed([1, 1], auto_retry_for=["WORKER_CRASHED", "TASK_TIMEOUT", "FLAKY"], jitter=False)


def trace(name: str, text: str = "") -> None:
    """One line in the file of this name; appending a short line is atomic."""
    folder = Path(os.environ["TRACES"])
    with (folder / name).open("a") as file:
        file.write(f"{os.getpid()} {text}\n")


def traced(name: str) -> int:
    path = Path(os.environ["TRACES"]) / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def may_go_on(name: str) -> bool:
    return (Path(os.environ["TRACES"]) / f"{name}.go").exists()


@app.task("add")
def add(a: int, b: int) -> Outcome:
    return TaskResult(ok=a + b)


@app.task("noop")
def noop() -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("pid")
def pid(name: str = "pid") -> Outcome:
    trace(name)
    return TaskResult(ok=os.getpid())


@app.task("nap")
def nap(seconds: float, name: str = "nap") -> Outcome:
    """Until its time is over, or the test lets it go on."""
    trace(name, "begin")
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0 and not may_go_on(name):
        time.sleep(min(rest, 0.02))
    trace(name, "end")
    return TaskResult(ok=os.getpid())


@app.task("doze")
def doze(seconds: float) -> TaskResult[None, TaskError]:
    """Leaves no trace, so that it takes no longer than that."""
    if seconds:
        time.sleep(seconds)
    return TaskResult(ok=None)


@app.task("fail")
def fail(code: str = "BAD_THING") -> Outcome:
    return TaskResult(err=TaskError(error_code=code, message="as told"))


@app.task("boom")
def boom() -> Outcome:
    raise RuntimeError("boom")


@app.task("flaky", retry_policy=AGAIN)
def flaky(name: str, successes_after: int) -> Outcome:
    trace(name)
    if traced(name) <= successes_after:
        return TaskResult(err=TaskError(error_code="FLAKY", message="not yet"))
    return TaskResult(ok=traced(name))


@app.task("die")
def die(how: str, name: str = "die") -> Outcome:
    trace(name)
    _die(how)
    return TaskResult(ok=0)


@app.task("die_once", retry_policy=AGAIN)
def die_once(how: str, name: str) -> Outcome:
    trace(name)
    if traced(name) == 1:
        _die(how)
    return TaskResult(ok=traced(name))


def _die(how: str) -> None:
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "close fds":
            os.closerange(0, 4096)
        case "sys.exit":
            sys.exit(4)
        case "interrupt":
            raise KeyboardInterrupt
        case "base":
            raise BaseException("odd")


@app.task("slow", timeout_ms=1_000)
def slow(name: str = "slow", stubborn: bool = False) -> Outcome:
    trace(name, "begin")
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            time.sleep(0.2)
        except BaseException:
            if not stubborn:
                raise
    trace(name, "end")
    return TaskResult(ok=1)


@app.task("slow_once", timeout_ms=1_000, retry_policy=AGAIN)
def slow_once(name: str) -> Outcome:
    trace(name)
    if traced(name) == 1:
        time.sleep(30)
    return TaskResult(ok=traced(name))


@app.task("anap")
async def anap(seconds: float, name: str = "anap") -> Outcome:
    trace(name, "begin")
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0 and not may_go_on(name):
        await asyncio.sleep(min(rest, 0.02))
    trace(name, "end")
    return TaskResult(ok=os.getpid())


@app.task("ameet")
async def ameet(number: int, name: str) -> Outcome:
    """Wait until so many have begun; for ever if they are not run side by side."""
    trace(name, "begin")
    while traced(name) < number:
        await asyncio.sleep(0.01)
    trace(name, "end")
    return TaskResult(ok=os.getpid())


@app.task("aslow", timeout_ms=1_000)
async def aslow(stubborn: bool = False) -> Outcome:
    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if not stubborn:
                raise


@app.task("wrong_type")
def wrong_type() -> Outcome:
    return TaskResult(ok="text")  # type: ignore[arg-type]


@app.task("unserializable")
def unserializable() -> TaskResult[str, TaskError]:
    return TaskResult(ok="lone \ud800 surrogate")


@app.task("big")
def big(size: int) -> TaskResult[str, TaskError]:
    return TaskResult(ok="x" * size)


@app.task("length")
def length(text: str) -> Outcome:
    return TaskResult(ok=len(text))


@app.task("nul")
def nul() -> TaskResult[str, TaskError]:
    return TaskResult(ok="a\x00b")


@app.task("odd_error")
def odd_error(message: str) -> Outcome:
    text = "lone \ud800" if message == "surrogate" else message
    return TaskResult(err=TaskError(error_code="ODD", message=text))


@app.task("loud")
def loud(size: int) -> Outcome:
    sys.stdout.write("x" * size + "\n")
    return TaskResult(ok=size)


@app.task("forks")
def forks(name: str) -> Outcome:
    child = os.fork()
    if child == 0:
        return TaskResult(ok=-1)  # the copy: it must not report this, nor go on reading tasks
    trace(name)
    return TaskResult(ok=child)


@app.task("threads")
def threads() -> Outcome:
    for _ in range(3):
        threading.Thread(target=threading.Event().wait).start()
    return TaskResult(ok=threading.active_count())


_kept: list[bytes] = []


@app.task("grow")
def grow(megabytes: int) -> Outcome:
    _kept.append(os.urandom(1024) * 1024 * megabytes)
    time.sleep(0.2)  # the child looks at its memory at most every few milliseconds
    return TaskResult(ok=os.getpid())


@app.task("spin")
def spin(seconds: float) -> Outcome:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return TaskResult(ok=1)


@app.task("relay")
def relay(a: int, b: int) -> TaskResult[str, TaskError]:
    """Send another task from inside a child."""
    return TaskResult(ok=add.send(a, b).unwrap().task_id)
