"""The app that the workers of the chaos serve: tasks of all kinds, each of which notes its runs. A result, and an error
of its own, names the run that made it. What the worker is told about itself comes from the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from random import random
from typing import Any

from horsies import (
    AppConfig,
    CustomQueueConfig,
    Horsies,
    PostgresConfig,
    QueueMode,
    RetryPolicy,
    TaskError,
    TaskResult,
    WorkerResilienceConfig,
    is_ok,
)
from tests.chaos import flows as flows  # its definitions of child workflows are those that this app knows
from tests.chaos.journal import TICK_EVERY_S, Journal
from tests.chaos.kinds import CRASHED, FLAKY, NOT_SENT, VARIABLE

told = json.loads(os.environ.get(VARIABLE, "{}"))
journal = Journal(Path(told.get("journal", os.devnull)), told.get("direct", ""))

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="main", priority=50, max_concurrency=None),
            CustomQueueConfig(name="few", priority=10, max_concurrency=2),
        ],
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=1_000),
        **told.get("settings", {}),
    )
)


def tell_where_it_hangs(_signal: int, _frame: object) -> None:
    """Of a worker that does not end: what every task of its event loop waits for, into its log."""
    for task in asyncio.all_tasks():
        print(f"HANGS {task!r}", file=sys.stderr)
        inner: Any = task.get_coro()
        while inner is not None:  # from each coroutine to the one it waits for
            frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
            where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" if frame else repr(inner)
            name = getattr(frame.f_locals.get("self"), "name", "") if frame else ""
            print(f"    {where} {name}", file=sys.stderr, flush=True)
            inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)


if told and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGUSR2, tell_where_it_hangs)

Outcome = TaskResult[str, TaskError]
AGAIN = RetryPolicy.fixed([1, 1, 1], auto_retry_for=[CRASHED], jitter=False)
FLAKY_AGAIN = RetryPolicy.fixed([1, 1], auto_retry_for=[FLAKY], jitter=True)
SLOW_AGAIN = RetryPolicy.fixed([1], auto_retry_for=["TASK_TIMEOUT"], jitter=False)


def ended(token: str, how: str = "returned") -> Outcome:
    journal.note(token, how)
    return TaskResult(ok=token)


def failed(token: str, code: str) -> Outcome:
    journal.note(token, "returned")
    return TaskResult(err=TaskError(error_code=code, message=token))


def last(token: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, TICK_EVERY_S))
        journal.note(token, "tick")


async def last_async(token: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, TICK_EVERY_S))
        journal.note(token, "tick")


@app.task("short", queue_name="main")
def short(key: str) -> Outcome:
    return ended(journal.begin(key, "short"))


@app.task("few", queue_name="few")
def few(key: str, seconds: float) -> Outcome:
    """In a queue with a cap, so that claims are counted."""
    token = journal.begin(key, "few")
    last(token, seconds)
    return ended(token)


@app.task("long", queue_name="main")
def long(key: str, seconds: float) -> Outcome:
    token = journal.begin(key, "long")
    last(token, seconds)
    return ended(token)


@app.task("patient", queue_name="main", retry_policy=AGAIN)
def patient(key: str, seconds: float) -> Outcome:
    token = journal.begin(key, "patient")
    last(token, seconds)
    return ended(token)


@app.task("grind", queue_name="main")
def grind(key: str, seconds: float) -> Outcome:
    """Hold the interpreter with C code for about this long."""
    token = journal.begin(key, "grind")
    began = time.process_time()
    sum(range(2_000_000))
    per_million = (time.process_time() - began) / 2
    sum(range(int(seconds / per_million * 1_000_000)))
    return ended(token)


@app.task("nap", queue_name="main")
async def nap(key: str, seconds: float) -> Outcome:
    token = journal.begin(key, "nap")
    await last_async(token, seconds)
    return ended(token)


@app.task("patient_nap", queue_name="main", retry_policy=AGAIN)
async def patient_nap(key: str, seconds: float) -> Outcome:
    token = journal.begin(key, "patient_nap")
    await last_async(token, seconds)
    return ended(token)


@app.task("flaky", queue_name="main", retry_policy=FLAKY_AGAIN)
def flaky(key: str) -> Outcome:
    token = journal.begin(key, "flaky")
    return failed(token, FLAKY) if random() < 0.6 else ended(token)


@app.task("boom", queue_name="main")
def boom(key: str) -> Outcome:
    token = journal.begin(key, "boom")
    journal.note(token, "raised")
    raise RuntimeError(f"run={token}")


@app.task("slow", queue_name="main", timeout_ms=1_000, retry_policy=SLOW_AGAIN)
def slow(key: str, is_stubborn: bool) -> Outcome:
    token = journal.begin(key, "slow")
    end = time.monotonic() + 6.0
    while time.monotonic() < end:
        try:
            last(token, end - time.monotonic())
        except BaseException:
            if not is_stubborn:
                raise
    return ended(token)


@app.task("slow_nap", queue_name="main", timeout_ms=1_000)
async def slow_nap(key: str) -> Outcome:
    token = journal.begin(key, "slow_nap")
    await last_async(token, 6.0)
    return ended(token)


@app.task("crash", queue_name="main")
def crash(key: str, how: str) -> Outcome:
    token = journal.begin(key, "crash")
    die(token, how)
    return ended(token)


@app.task("crash_again", queue_name="main", retry_policy=AGAIN)
def crash_again(key: str, how: str) -> Outcome:
    token = journal.begin(key, "crash_again")
    if random() < 0.6:
        die(token, how)
    return ended(token)


def die(token: str, how: str) -> None:
    journal.note(token, how)
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGSEGV if how == "segv" else signal.SIGKILL)
    time.sleep(10)


@app.task("poison", queue_name="main", retry_policy=AGAIN)
def poison(key: str) -> Outcome:
    """Kill the whole worker, mostly."""
    token = journal.begin(key, "poison")
    if random() < 0.7:
        kill_worker(token)
    return ended(token)


def kill_worker(token: str) -> None:
    """By a handle, looked at before it is used: a supervisor that is gone has given its number, and its place as our
    fork server's parent, to somebody else."""
    fork_server = os.getppid()
    supervisor = int(Path(f"/proc/{fork_server}/stat").read_text().rpartition(")")[2].split()[1])
    handle = os.pidfd_open(supervisor)
    try:
        is_ours = f"{VARIABLE}={os.environ[VARIABLE]}".encode() in Path(f"/proc/{supervisor}/environ").read_bytes()
        if is_ours and b"horsies.cli.main" in Path(f"/proc/{supervisor}/cmdline").read_bytes():
            journal.note(token, f"kills {supervisor}")
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            time.sleep(10)
    finally:
        os.close(handle)


@app.task("relay", queue_name="main")
def relay(key: str) -> Outcome:
    """Send a task from inside a child. Whoever kills it leaves open whether that was sent."""
    token = journal.begin(key, "relay")
    return ended(token) if is_ok(short.send(key=f"{key}/{token}")) else failed(token, NOT_SENT)


# Nodes of workflows. `before` is what an earlier one gave.


@app.task("step", queue_name="main", retry_policy=AGAIN)
def step(key: str, seconds: float, before: Outcome | None = None) -> Outcome:
    token = journal.begin(key, "step")
    last(token, seconds)
    return ended(token)


@app.task("step_plain", queue_name="main")
def step_plain(key: str, seconds: float, before: Outcome | None = None) -> Outcome:
    token = journal.begin(key, "step_plain")
    last(token, seconds)
    return ended(token)


@app.task("step_nap", queue_name="main", retry_policy=AGAIN)
async def step_nap(key: str, seconds: float, before: Outcome | None = None) -> Outcome:
    token = journal.begin(key, "step_nap")
    await last_async(token, seconds)
    return ended(token)


@app.task("step_flaky", queue_name="main", retry_policy=FLAKY_AGAIN)
def step_flaky(key: str, seconds: float, before: Outcome | None = None) -> Outcome:
    token = journal.begin(key, "step_flaky")
    return failed(token, FLAKY) if random() < 0.5 else ended(token)


@app.task("listing", queue_name="main", retry_policy=AGAIN)
def listing(key: str, count: int) -> TaskResult[list[str], TaskError]:
    """The keys of the elements; each names the run that made it."""
    token = journal.begin(key, "listing")
    journal.note(token, "returned")
    return TaskResult(ok=[f"{key}.{number} run={token}" for number in range(count)])


@app.task("element", queue_name="main", retry_policy=AGAIN)
def element(key: str, seconds: float) -> Outcome:
    token = journal.begin(key, "element")
    last(token, seconds)
    return failed(token, FLAKY) if random() < 0.03 else ended(token)


@app.task("gather", queue_name="main", retry_policy=AGAIN)
def gather(key: str, parts: TaskResult[list[Outcome], TaskError]) -> Outcome:
    return ended(journal.begin(key, "gather"))
