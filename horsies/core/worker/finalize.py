"""The end of a task: what it means, how it is written, and what the log says about it.

`Finalizer` writes the ends of tasks: results, retries, crashes, returns. Everything that has collected goes into one
batch, and into a second one beside it when many have collected meanwhile. Nothing is lost while the database is away:
moves wait here, in order, until they are written or their claim is found to be gone; only returns to the queue go
before the others, because somebody else can run these tasks. A row that the database refuses for its content is found
by halving the batch and does not hold up the others: it is mended, its result replaced, or the task set aside (L-19a),
whichever is enough. The functions `of_…` turn reports, deaths and timeouts into moves, without I/O. `OutcomeLog` logs a
line for each end that an operator may care about, and a summary of the rest. Workflows are advanced later, by
`advance.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from time import monotonic, time
from typing import TypeAlias

import psycopg

from horsies.core import events, logs, loop
from horsies.core.child.wire import Done
from horsies.core.codec.serde import sanitize_text, serialize_error_payload
from horsies.core.db import AWAY, Backoff, Connection, Pool, by_halves, describe, is_about_content
from horsies.core.models.recovery import WorkerRecoveryConfig, WorkerResilienceConfig
from horsies.core.models.tasks import BuiltInTaskCode, OperationalErrorCode, OutcomeCode, TaskError, TaskResult
from horsies.core.recovery.decide import crashed, expired, not_charged
from horsies.core.store import tasks
from horsies.core.tasks.moves import Complete, Expire, Fail, Leave, Move, Requeue, Retry, SetAside, retry_or_fail
from horsies.core.tasks.tally import EndKind, OutcomeTally
from horsies.core.types import TaskAttemptOutcome
from horsies.core.worker.in_hand import HeldTask, InHand, Phase, log_fields

log = logging.getLogger("horsies.worker")

MAX_BATCH = 500
MAX_BATCH_BYTES = 8 << 20
CROWD = 60  # so many ends are worth a batch beside the one that is being written
MOST_FAILED_STARTS = 10
PERIOD_S = 5.0  # of the summaries in the log
LINES = 10  # so many failures get their own line in each period

Settled: TypeAlias = Callable[[HeldTask, Move, bool], None]


@dataclass(slots=True)
class Ending:
    """One task and its end. `uncertain`: an earlier try may have been committed without our knowledge; `mended`: its
    row was brought within the limits; `replaced`: the database refused the result, and this is the record of that."""

    held: HeldTask
    move: Move
    uncertain: bool = False
    mended: bool = False
    replaced: bool = False
    refusals: int = 0

    @property
    def goes_back(self) -> bool:
        """Whether the task returns to the queue, because its code has not begun."""
        return type(self.move) is Requeue


class Finalizer:
    """`put` adds an end; `on_settled(held, move, moved)` is called once it is in the database, or was too late, and
    `on_stuck(held)` when it cannot be written for now."""

    def __init__(
        self,
        connections: ConnectionChoice,
        worker_id: str,
        config: WorkerResilienceConfig,
        on_settled: Settled,
        on_stuck: Callable[[HeldTask], None] = lambda held: None,
    ) -> None:
        self._connections = connections
        self._worker_id = worker_id
        self._on_settled = on_settled
        self._on_stuck = on_stuck
        self._config = config
        self._backoff = Backoff(config.db_retry_initial_ms / 1000, config.db_retry_max_ms / 1000)
        self._endings: deque[Ending] = deque()
        self.on_replaced: Callable[[HeldTask, Move], None] = lambda held, move: None  # this is written instead
        self.unwritable: dict[str, str] = {}  # tasks that cannot even be set aside, and what the database says
        self._work = asyncio.Event()
        self._crowd = asyncio.Event()

    def put(self, held: HeldTask, move: Move, *, uncertain: bool = False) -> None:
        """The end of this task is known; write it as soon as possible."""
        if held.phase is Phase.STARTED:
            held.settling_since = monotonic()
        held.phase = Phase.SETTLING
        ending = Ending(held, move, uncertain)
        self._endings.appendleft(ending) if ending.goes_back else self._endings.append(ending)
        self._ring()

    def _append(self, ending: Ending) -> None:
        self._endings.append(ending)
        self._ring()

    def _ring(self) -> None:
        self._work.set()
        if len(self._endings) >= CROWD:
            self._crowd.set()

    async def run(self) -> None:
        await self._lane(self._work, 1, loop.Patience("finalizer", self._config))

    async def run_beside(self) -> None:
        """A second lane, for the ends that collect while the first one waits for the disk. It writes only when they are
        many: few are better written together."""
        await self._lane(self._crowd, CROWD, loop.Patience("second finalizer", self._config))

    async def _lane(self, bell: asyncio.Event, least: int, patience: loop.Patience) -> None:
        while True:
            await bell.wait()
            if len(self._endings) < least:
                bell.clear()
                continue
            await self._write(self._next_batch(), patience)

    def _next_batch(self) -> list[Ending]:
        batch: list[Ending] = []
        size = 0
        while self._endings and len(batch) < MAX_BATCH and (size < MAX_BATCH_BYTES or not batch):
            if batch and (self._endings[0].refusals or batch[0].refusals):
                break  # what was refused is tried alone, or it would keep back a whole batch again
            ending = self._endings.popleft()
            size += ending.held.result_size
            batch.append(ending)
        return batch

    async def _write(self, batch: list[Ending], patience: loop.Patience) -> None:
        """Write this batch. When the database refuses its content, or somebody keeps a row of it locked, halve it."""
        write = partial(self._write_part, patience)
        await by_halves(batch, write, is_refusal=_is_about_one, give_up=self._set_aside)

    async def _write_part(self, patience: loop.Patience, batch: Sequence[Ending]) -> None:
        """In one transaction, however long the database is away."""
        while True:
            began = monotonic()
            try:
                async with self._connections.connection() as conn:
                    moved = await tasks.apply_kinds(conn, self._worker_id, [ending.move for ending in batch])
            except (*AWAY, UnicodeError) as problem:
                if _is_about_one(problem):
                    if len(batch) == 1 and is_about_content(problem) and await self._overcome(batch[0], problem):
                        continue
                    raise
                for ending in batch:
                    ending.uncertain = True
                await asyncio.sleep(patience.failed(problem))
                continue
            patience.succeeded()
            if events.listeners:
                events.emit("tasks.finalized", endings=batch, moved=moved, seconds=monotonic() - began)
            self._settle(batch, moved)
            return

    async def _overcome(self, ending: Ending, problem: BaseException) -> bool:
        """The database refuses this row. Do the least that may help, and say whether to try again: bring the row within
        the limits, then record the refusal instead of the result, then set the task aside."""
        if not ending.mended and isinstance(problem, psycopg.Error):
            ending.mended = True
            with contextlib.suppress(*AWAY):  # the next try says the same
                async with self._connections.connection() as conn:
                    await tasks.mend(conn, self._worker_id, [ending.move.claim])
            return True
        about = {"horsies": {"task_id": ending.held.id, "task": ending.held.row.task_name}}
        log.error("the database refused the end of a task: %s", describe(problem), extra=about)
        if not ending.replaced and not isinstance(ending.move, Requeue | Leave | Expire | SetAside):
            ending.move, ending.replaced = of_refused_row(ending.held, describe(problem)), True
        elif isinstance(ending.move, SetAside):
            return False
        else:
            ending.move = SetAside(ending.move.claim, f"the database refuses its end: {describe(problem)}")
        self.on_replaced(ending.held, ending.move)
        return True

    def _set_aside(self, ending: Ending, problem: Exception) -> None:
        """Nothing about this task can be written now: it is retried from time to time, and the others continue."""
        if is_about_content(problem):
            self.unwritable[ending.held.id] = describe(problem)
        ending.refusals += 1
        pause = self._backoff.delay(ending.refusals)
        asyncio.get_running_loop().call_later(pause, self._append, ending)
        self._on_stuck(ending.held)

    def _settle(self, batch: Iterable[Ending], moved: Mapping[str, type]) -> None:
        for ending in batch:
            if self.unwritable:
                self.unwritable.pop(ending.held.id, None)
            ok = ending.held.id in moved
            if not ok and not ending.uncertain:
                log.warning(
                    "the result is dropped: the task was recovered or cancelled in the meantime",
                    extra={"horsies": {"task_id": ending.held.id, "task": ending.held.row.task_name}},
                )
            move = ending.move
            if isinstance(move, Retry | Leave) and moved.get(ending.held.id) is Fail:
                move = move.otherwise  # the deadline left no room for it (L-22), or it was left for too long (O-32)
            self._on_settled(ending.held, move, ok)


def _is_about_one(problem: Exception) -> bool:
    return isinstance(problem, psycopg.errors.LockNotAvailable) or is_about_content(problem)


def size_of(move: Move) -> int:
    """About how many bytes its result has."""
    if type(move) is Complete:
        return len(move.result)
    end = move.otherwise if isinstance(move, Retry | Leave) else move
    return len(getattr(end, "result", ""))


class ConnectionChoice:
    """A single task uses the same backend process for claim, start and end, because that process is awake and has its
    data cached; waking another one would cost more than the statement. With two or more tasks the stages would block
    each other, so starts and ends use their own sessions, which plan for many rows."""

    def __init__(self, in_hand: InHand, claims: Pool, bulk: Pool) -> None:
        self._in_hand = in_hand
        self._claims = claims
        self._bulk = bulk

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        is_alone = len(self._in_hand) == 1 and self._claims.has_idle
        return (self._claims if is_alone else self._bulk).connection()


def of_report(held: HeldTask, done: Done) -> Move:
    """The child has run the function (L-10, L-11, L-12), or could not read its arguments (L-13b)."""
    if done.ok:
        return Complete(held.claim, done.result)
    if done.leave_ms:
        message = _clean(done.error_message)
        return Leave(held.claim, done.leave_ms / 1000, Fail(held.claim, done.result, done.error_code, message))
    return _retry_or_fail(held, Fail(held.claim, done.result, done.error_code, _clean(done.error_message)))


def of_timeout(held: HeldTask) -> Move:
    """The attempt took longer than its `timeout_ms`, and its code has ended (T-30)."""
    message = f"task {held.row.task_name!r} was stopped after its limit of {held.options.timeout_ms} ms"
    return _retry_or_fail(held, _fail(held, OutcomeCode.TASK_TIMEOUT, message))


def of_unreadable_report(held: HeldTask, problem: str) -> Move:
    """The child's reply cannot be used (W-33)."""
    message = f"the reply of the child process cannot be read: {problem}"
    return _retry_or_fail(held, _fail(held, OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message))


def of_refused_row(held: HeldTask, problem: str) -> Move:
    """The database refuses the row for its content, alone in its batch (L-34)."""
    message = f"the database refused the result: {problem}"
    return _fail(held, OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message)


def of_crash(held: HeldTask, worker_id: str, hostname: str, pid: int, end: str) -> Move:
    """The child died while it ran the function: retried if the policy lists WORKER_CRASHED, otherwise failed (R-20,
    W-35)."""
    return _retry_or_fail(held, _crash(held, worker_id, hostname, pid, end))


def of_failed_start(held: HeldTask, worker_id: str, hostname: str, pid: int, end: str) -> Move:
    """The child died when this task was next, before it reported the start: the task returns to the queue, and this is
    counted. A payload that kills every child that reads it must not loop for ever (R-102)."""
    count = held.row.start_failures + 1
    history = f"{count}. child process {pid} of worker {worker_id}: {end}"
    if held.row.exits:
        history = f"{held.row.exits}; {history}"
    if count < MOST_FAILED_STARTS:
        return Requeue(held.claim, reason=sanitize_text(history), failed_start=True)
    reason = f"its child process died before the task started, {count} times in a row: {history}"
    return crashed(held.claim, reason, worker_id, hostname, pid)


def of_forced_shutdown(held: HeldTask, worker_id: str, hostname: str, pid: int, recovery: WorkerRecoveryConfig) -> Move:
    """The worker was told to stop at once (W-52): as a crash, or not counted if the worker has worker recovery."""
    crash = _crash(held, worker_id, hostname, pid, "SHUTDOWN: the worker was stopped before the task had ended")
    if not recovery.enabled:
        return _retry_or_fail(held, crash)
    return not_charged(crash, recovery.recovery_delay.total_seconds())


def of_deadline(held: HeldTask, worker_id: str) -> Move:
    """The deadline passed between claim and start (L-08)."""
    return expired(held.claim, worker_id)


def may_be_the_end(move: Move, moved: bool) -> bool:
    """Whether this may be the end of the task. Also if nothing has moved, because an earlier try may have succeeded
    unnoticed (L-34)."""
    return not isinstance(move, Requeue) and not (moved and isinstance(move, Retry | Leave))


def describe_exit(returncode: int) -> str:
    """How a process ended, for people."""
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


def _crash(held: HeldTask, worker_id: str, hostname: str, pid: int, end: str) -> Fail:
    return crashed(held.claim, f"child process {pid} of worker {worker_id}: {end}", worker_id, hostname, pid)


def _fail(held: HeldTask, code: BuiltInTaskCode, message: str) -> Fail:
    message = sanitize_text(message)
    error = TaskError(error_code=code, message=message)
    return Fail(held.claim, serialize_error_payload(TaskResult(err=error)), code.value, message)


def _retry_or_fail(held: HeldTask, fail: Fail) -> Move:
    return retry_or_fail(fail, held.options.retry_policy, held.row.retry_count, held.row.max_retries)


def _clean(text: str | None) -> str | None:
    return None if text is None else sanitize_text(text)


_VERBS: dict[type, str] = {
    Complete: "completed",
    Fail: "failed",
    Retry: "retried",
    Leave: "left to others",
    Expire: "expired",
    SetAside: "set aside",
}


_OUTCOMES: dict[type, EndKind] = {
    Complete: EndKind.COMPLETED,
    Fail: EndKind.FAILED,
    Retry: EndKind.RETRIED,
    Expire: EndKind.EXPIRED,
    SetAside: EndKind.FAILED,
}


def _code_of(move: Move) -> str:
    end = move.otherwise if isinstance(move, Retry) else move
    if isinstance(end, Fail):
        return end.error_code or ""
    return (OutcomeCode.TASK_EXPIRED if isinstance(end, Expire) else OperationalErrorCode.ROW_SET_ASIDE).value


class OutcomeLog:
    """Counts ended tasks; `summarize` is called every `PERIOD_S`. With thousands of tasks per second nobody reads a
    line per task: at most `LINES` failures per period get their own line, and the others are in the numbers. `tally`
    counts them for the statistics (D-59)."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.tally = OutcomeTally()
        self.ahead_s = time() - monotonic()  # from our clock to the database's, in seconds since 1970
        self._counts: Counter[str] = Counter()
        self._lines = 0
        self._earlier: Counter[str] = Counter()
        self.aborts: Counter[str] = Counter()  # L-26: by the name of the abort

    def note(self, held: HeldTask, move: Move) -> None:
        kind = type(move)
        verb = _VERBS.get(kind, "handed back")
        self._counts[verb] += 1
        if (outcome := _OUTCOMES.get(kind)) is not None:
            row, started = held.row, held.started
            group = self.tally.group(row.queue_name, row.task_name, "" if kind is Complete else _code_of(move))
            group.ended(outcome, held.id)
            if started is not None:
                if held.due is not None and not row.start_failures:
                    group.waited(started + self.ahead_s - held.due)
                if held.settling_since is not None:
                    group.ran(held.settling_since - started)
        if kind is not Complete and isinstance(move, Fail | SetAside | Retry):
            self._tell_of(held, move)
        elif log.isEnabledFor(logging.DEBUG):
            log.debug("task %s", verb, extra={"horsies": self._fields(held)})

    def _tell_of(self, held: HeldTask, move: Fail | SetAside | Retry) -> None:
        if isinstance(move, Fail):
            self._line("task failed", held, move)
        elif isinstance(move, SetAside):
            code = OperationalErrorCode.ROW_SET_ASIDE.value
            logs.log_failure(log, logging.ERROR, "task set aside", self._fields(held), code=code, reason=move.reason)
        else:
            self._line(f"task failed and will be retried in {move.delay_s:.0f} s", held, move.otherwise)

    async def tell(self) -> None:
        """As the step of a service."""
        self.summarize()

    def summarize(self) -> None:
        if self._counts:
            text = ", ".join(f"{count} {verb}" for verb, count in self._counts.most_common())
            log.info("last %g s: %s", PERIOD_S, text, extra={"horsies": {"worker": self.worker_id}})
        self._earlier.update(self._counts)
        self._counts.clear()
        self._lines = 0

    def in_all(self) -> str:
        """The totals of all its tasks, in words."""
        total = self._earlier + self._counts
        return ", ".join(f"{count} {verb}" for verb, count in total.most_common()) or "no task"

    def _line(self, event: str, held: HeldTask, fail: Fail) -> None:
        self._lines += 1
        crashed = fail.outcome is TaskAttemptOutcome.WORKER_FAILURE
        level = logging.ERROR if crashed else logging.WARNING
        if self._lines > LINES and not crashed:
            level = logging.DEBUG
        reason = (fail.failed_reason or fail.error_message or "").removeprefix(f"task {held.row.task_name!r} ")
        logs.log_failure(log, level, event, self._fields(held), code=fail.error_code, reason=reason)
        if log.isEnabledFor(logging.DEBUG) and (trace := traceback_in(fail.result)):
            log.debug("it failed at:\n%s", trace, extra={"horsies": self._fields(held)})

    def _fields(self, held: HeldTask) -> dict[str, object]:
        return {**log_fields(held), "worker": self.worker_id}


def traceback_in(result: str) -> str | None:
    """The traceback in the stored error, if there is one."""
    try:
        found = json.loads(result)["err"]["exception"]["traceback"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None
