"""What the demo shows, scene by scene. A scene sends tasks, acts on them, and waits for them to end. Its `expected`
says how its rows must look afterwards: (state, error code, outcomes of the attempts) and how many; `report.py` compares
that with the database. The scene itself checks what the caller gets.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from horsies import Err, TaskHandle, TaskResult, TaskSendResult
from horsies.demo import app as tasks
from horsies.demo.report import Ends, NotAsExpected, must_be

T = TypeVar("T")
Sending: TypeAlias = Awaitable[TaskSendResult[TaskHandle[T]]]
ADDITIONS, WITHDRAWALS, FLAKY, FETCHES, ECHOES = 2_000, 300, 40, 400, 200
SENDERS = 32  # so many sends are under way at the same time
PATIENCE_MS = 60_000
DONE = ("COMPLETED", None, "COMPLETED")
RETRIED = ("COMPLETED", None, "FAILED+ COMPLETED")
REFUSED = ("FAILED", "INSUFFICIENT_FUNDS", "FAILED")
EXPIRED = ("EXPIRED", "TASK_EXPIRED", "")
CANCELLED = ("CANCELLED", "TASK_CANCELLED", "")
TIMED_OUT = ("FAILED", "TASK_TIMEOUT", "FAILED")
CRASHED = ("FAILED", "WORKER_CRASHED", "WORKER_FAILURE")
SURVIVED = ("COMPLETED", None, "WORKER_FAILURE+ COMPLETED")


@dataclass
class DemoStage:
    """What scenes work with: a directory for notes, a way to start the worker, the progress, and the measurements."""

    notes: Path
    start_worker: Callable[[], None]
    advance: Callable[[], None] = lambda: None
    waiting: list[TaskHandle[int]] = field(default_factory=list)
    sends_per_second: float = 0.0
    round_trips_ms: list[float] = field(default_factory=list)

    def note(self, name: str) -> str:
        return str(self.notes / name)


@dataclass(frozen=True)
class Scene:
    """`sentence` says what the scene has shown if it ended as expected; `steps` is the length of its progress bar."""

    title: str
    sentence: str
    play: Callable[[DemoStage], Awaitable[None]]
    expected: Ends
    steps: int = 1


async def sends(stage: DemoStage) -> None:
    began = time.perf_counter()
    additions = (tasks.add.send_async(n, b=1) for n in range(ADDITIONS))
    stage.waiting = await _send_all(additions, then=stage.advance)
    stage.sends_per_second = ADDITIONS / (time.perf_counter() - began)


async def results_of_sends(stage: DemoStage) -> None:
    stage.start_worker()
    results = await _results(stage.waiting, stage)
    must_be(sum(result.ok_value for result in results), sum(range(1, ADDITIONS + 1)), "the sum of all results")


async def echoes(stage: DemoStage) -> None:
    for number in range(ECHOES):
        began = time.perf_counter()
        [result] = await _results([_sent(await tasks.echo.send_async(number))], stage)
        stage.round_trips_ms.append((time.perf_counter() - began) * 1000)
        must_be(result.ok_value, number, "the echo")


async def withdrawals(stage: DemoStage) -> None:
    handles = await _send_all(tasks.withdraw.send_async(100, 101 + n) for n in range(WITHDRAWALS))
    for number, result in enumerate(await _results(handles, stage)):
        must_be(_code(result), "INSUFFICIENT_FUNDS", "the error code")
        must_be(result.err_value.data, {"short": number + 1}, "the data of the error")


async def retries(stage: DemoStage) -> None:
    handles = await _send_all(tasks.flaky.send_async(stage.note(f"flaky-{n}")) for n in range(FLAKY))
    for result in await _results(handles, stage):
        must_be(result.ok_value, "at the second attempt", "the result")


async def deadline(stage: DemoStage) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=500)
    handle = _sent(await tasks.too_late.with_options(good_until=soon).schedule_async(3_600))
    [result] = await _results([handle], stage)
    must_be(_code(result), "TASK_EXPIRED", "the error code")


async def cancellation(stage: DemoStage) -> None:
    waiting = _sent(await tasks.unwanted.schedule_async(3_600))
    running = _sent(await tasks.stopped.send_async(stage.note("stopped")))
    await _exists(Path(stage.note("stopped")))
    await waiting.cancel_async()
    await running.cancel_async(include_running=True)
    for result in await _results([waiting, running], stage):
        must_be(_code(result), "TASK_CANCELLED", "the error code")
    await _exists(Path(stage.note("stopped.ended")))


async def timeout(stage: DemoStage) -> None:
    [result] = await _results([_sent(await tasks.endless.send_async())], stage)
    must_be(_code(result), "TASK_TIMEOUT", "the error code")


async def crash(stage: DemoStage) -> None:
    handle = _sent(await tasks.victim.send_async(stage.note("victim")))
    await _kill_process_of(handle, Path(stage.note("victim")))
    [result] = await _results([handle], stage)
    must_be(_code(result), "WORKER_CRASHED", "the error code")


async def survival(stage: DemoStage) -> None:
    handle = _sent(await tasks.survivor.send_async(stage.note("survivor")))
    await _kill_process_of(handle, Path(stage.note("survivor")))
    [result] = await _results([handle], stage)
    must_be(result.ok_value, "at the second attempt", "the result")


async def fan_out(stage: DemoStage) -> None:
    handles = await _send_all(tasks.fetch.send_async(n) for n in range(FETCHES))
    results = await _results(handles, stage)
    must_be([result.ok_value for result in results], list(range(FETCHES)), "the results in the order of the sends")


async def workflow(stage: DemoStage) -> None:
    started = await tasks.sum_of_squares.start_async()
    if isinstance(started, Err):
        raise NotAsExpected(f"a workflow could not be started: {started.err_value.message}")
    result = await started.ok_value.get_async(timeout_ms=PATIENCE_MS)
    stage.advance()
    must_be(result.ok_value, sum(n * n for n in range(tasks.NUMBERS)), "the result of the workflow")


SCENES = [
    Scene(
        "sending, no worker yet",
        f"{ADDITIONS:,} additions were sent while no worker was running: each is a waiting row.",
        sends,
        {},
        ADDITIONS,
    ),
    Scene(
        "a worker starts",
        f"Then a worker started, and each of the {ADDITIONS:,} returned its sum.",
        results_of_sends,
        {"demo.add": {DONE: ADDITIONS}},
        ADDITIONS,
    ),
    Scene(
        "one after the other",
        f"{ECHOES} tasks were sent one by one, each after the result of the one before it had arrived.",
        echoes,
        {"demo.echo": {DONE: ECHOES}},
        ECHOES,
    ),
    Scene(
        "errors are values",
        f"{WITHDRAWALS} withdrawals returned an error of their own (INSUFFICIENT_FUNDS) and are FAILED with its data.",
        withdrawals,
        {"demo.withdraw": {REFUSED: WITHDRAWALS}},
        WITHDRAWALS,
    ),
    Scene(
        "retries",
        f"{FLAKY} tasks failed at first and succeeded a second later: both attempts of each are recorded.",
        retries,
        {"demo.flaky": {RETRIED: FLAKY}},
        FLAKY,
    ),
    Scene(
        "async fan-out",
        f"{FETCHES} async tasks of 100 ms each ran side by side on the event loops of two processes.",
        fan_out,
        {"demo.fetch": {DONE: FETCHES}},
        FETCHES,
    ),
    Scene(
        "a workflow",
        f"A workflow made a list of {tasks.NUMBERS} numbers, a task for each of them to square it, and added them up.",
        workflow,
        {"demo.numbers": {DONE: 1}, "demo.square": {DONE: tasks.NUMBERS}, "demo.sum": {DONE: 1}},
    ),
    Scene(
        "a deadline",
        "A task that could not start before its deadline is EXPIRED: it never ran, so it has no attempt.",
        deadline,
        {"demo.too_late": {EXPIRED: 1}},
    ),
    Scene(
        "cancellation",
        "A waiting task and a running one were cancelled; the code of the running one really stopped.",
        cancellation,
        {"demo.unwanted": {CANCELLED: 1}, "demo.stopped": {CANCELLED: 1}},
        2,
    ),
    Scene(
        "a timeout",
        "A task that would have slept for ten minutes was stopped after its limit of one second: TASK_TIMEOUT.",
        timeout,
        {"demo.endless": {TIMED_OUT: 1}},
    ),
    Scene(
        "a killed process",
        "A process was killed with SIGKILL in the middle of a task: the task failed with WORKER_CRASHED at once.",
        crash,
        {"demo.victim": {CRASHED: 1}},
    ),
    Scene(
        "a killed process, with a retry policy",
        "Its twin with a retry policy was killed as well, and succeeded on its second attempt in a new process.",
        survival,
        {"demo.survivor": {SURVIVED: 1}},
    ),
]


async def _send_all(sendings: Iterable[Sending[T]], then: Callable[[], None] = lambda: None) -> list[TaskHandle[T]]:
    """Send all of them, some at a time; return the handles in the same order."""
    turn = asyncio.Semaphore(SENDERS)

    async def one(sending: Sending[T]) -> TaskHandle[T]:
        async with turn:
            handle = _sent(await sending)
        then()
        return handle

    return await asyncio.gather(*(one(sending) for sending in sendings))


def _sent(result: TaskSendResult[TaskHandle[T]]) -> TaskHandle[T]:
    if isinstance(result, Err):
        raise NotAsExpected(f"a task could not be sent: {result.err_value.message}")
    return result.ok_value


async def _results(handles: list[TaskHandle[T]], stage: DemoStage) -> list[TaskResult[T, Any]]:
    async def one(handle: TaskHandle[T]) -> TaskResult[T, Any]:
        result = await handle.get_async(timeout_ms=PATIENCE_MS)
        stage.advance()
        return result

    return await asyncio.gather(*(one(handle) for handle in handles))


def _code(result: TaskResult[Any, Any]) -> str | None:
    return None if result.err is None else str(result.err.error_code)


async def _kill_process_of(handle: TaskHandle[Any], note: Path) -> None:
    """Send SIGKILL to the process that runs the task, once the task itself has noted that it is running."""
    await _exists(note)
    info = (await handle.info_async()).unwrap()
    if info is None or not info.worker_pid or info.worker_pid <= 1:  # kill() reads such a number as a process group
        raise NotAsExpected("a running task does not say which process it runs in")
    os.kill(info.worker_pid, signal.SIGKILL)


async def _exists(note: Path) -> None:
    until = time.monotonic() + PATIENCE_MS / 1000
    while not os.path.exists(note):  # noqa: ASYNC240 - a look at a local file
        if time.monotonic() > until:
            raise NotAsExpected(f"no task has written the note {note.name}")
        await asyncio.sleep(0.02)
