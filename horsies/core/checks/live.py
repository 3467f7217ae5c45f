"""Phase 6, only in a live check: the database answers, and the tasks and schedules in it fit the present code.

Only the app's own queues are looked at, since others may be another app's. The look is bounded: the first tasks of each
queue in the order in which they will be claimed, and of each name the arguments of some; the first schedules by name.
If that was not everything, the finding says so. Arguments are read in the caller's thread and not on the broker's loop,
because that runs validators of the user's types.

The database is asked through `CheckConnection`, which changes nothing. The broker's own connections would create or
migrate the tables first. A check must not do that, because it may run with code that is not deployed yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import psycopg

from horsies.core import errors
from horsies.core.checks.code import CheckedApp
from horsies.core.db import (
    BY_INDEX,
    BridgeError,
    as_broker_result,
    broker_error,
    connect,
    describe,
    headline_of,
    without_session,
)
from horsies.core.hooks import Job
from horsies.core.models.broker import BrokerErrorCode, BrokerResult
from horsies.core.scheduler.payloads import read, schedule_problems, unusable
from horsies.core.schema.install import refuse_unfit
from horsies.core.store import schedules, task_reads
from horsies.core.types import Err, Ok, TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.task_decorator import TaskFunction

T = TypeVar("T")
Question: TypeAlias = Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]

MOST = 10_000  # tasks of each queue,
MOST_IN_ALL = 50_000  # shared by the queues, if there are many,
LEAST = 50  # but so many of each
SAMPLE = 500  # tasks of each name in a queue
STEP = 100  # tasks whose arguments are in memory at a time
MOST_SCHEDULES = 10_000
_LEFT = "workers leave them to others; they fail with WORKER_RESOLUTION_ERROR after unknown_task_grace_ms"
_WHERE = "the schedule is in the database: app.schedules.put(...) replaces it, app.schedules.remove(...) removes it"


def database(subject: CheckedApp) -> Iterator[errors.HorsiesError]:
    """The database answers."""
    with CheckConnection(subject.app.get_broker()) as visit:
        answer = visit.ask(lambda conn: conn.execute("SELECT 1"))
    if isinstance(answer, Err):
        yield from no_answer(answer)
    elif not (config := subject.app.config).broker.has_sessions:
        headline, slower = without_session(config.resilience.notify_poll_interval_ms / 1000)
        yield errors.CheckWarning(
            headline,
            code=errors.ErrorCode.CHECK_WITHOUT_SESSION,
            notes=slower,
            help_text="set session_database_url to an address that does not go through the pooler",
        )


def waiting_tasks(subject: CheckedApp, visit: CheckConnection) -> Iterator[errors.HorsiesError]:
    """Every waiting task is defined here, with arguments that it can read."""
    queues = sorted(subject.app.queue_names)
    most = min(MOST, max(LEAST, MOST_IN_ALL // max(1, len(queues))))
    found = visit.ask(lambda conn: task_reads.waiting(conn, queues, most=most, sample=SAMPLE))
    if isinstance(found, Err):
        yield from no_answer(found)
        return
    for each in grouped_by_name(found.value, most):
        task = subject.app.tasks.get(each.task_name)
        if task is None:
            yield _unknown(each, list(subject.app.tasks))
            continue
        read = _read(visit, task, each)
        if isinstance(read, Err):
            yield from no_answer(read)
            return
        if read.value.unreadable:
            yield _unreadable(each, task, read.value)


def stored_schedules(subject: CheckedApp, visit: CheckConnection) -> Iterator[errors.HorsiesError]:
    """The schedules that were put in place at run time (D-36) fit the present code as those of the code do. One that
    the code hides by its own of that name is left out."""
    app = subject.app
    of_code = {schedule.name for schedule in app.config.schedule.schedules} if app.config.schedule else set()
    found = visit.ask(partial(schedules.changes, known={}, most=MOST_SCHEDULES))
    if isinstance(found, Err):
        yield from no_answer(found)
        return
    for stored in found.value:
        if stored.name not in of_code:
            yield from _stored_problems(subject, stored)


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """The waiting tasks of one name, and whether these are all."""

    task_name: str
    queues: tuple[str, ...]
    count: int
    ids: tuple[str, ...]
    are_all: bool

    @property
    def amount(self) -> str:
        return f"{'' if self.are_all else 'at least '}{self.count}"


@dataclass(slots=True)
class ArgumentsRead:
    """How many were read, how many could not be read, and the first of these."""

    tried: int = 0
    unreadable: int = 0
    example: str = ""
    why: str = ""


def grouped_by_name(found: Sequence[task_reads.WaitingSample], most: int) -> list[WaitingTasks]:
    """By name alone. If a queue was not read to its end, the total is unknown."""
    looked_at: dict[str, int] = {}
    by_name: dict[str, list[task_reads.WaitingSample]] = {}
    for each in found:
        looked_at[each.queue_name] = looked_at.get(each.queue_name, 0) + each.tasks
        by_name.setdefault(each.task_name, []).append(each)
    is_whole = all(count < most for count in looked_at.values())
    return [
        WaitingTasks(
            name,
            tuple(part.queue_name for part in parts),
            sum(part.tasks for part in parts),
            tuple(task_id for part in parts for task_id in part.ids),
            is_whole,
        )
        for name, parts in sorted(by_name.items())
    ]


def _read(visit: CheckConnection, task: TaskFunction[Any, Any], each: WaitingTasks) -> BrokerResult[ArgumentsRead]:
    reading = ArgumentsRead()
    for start in range(0, len(each.ids), STEP):
        answer = visit.ask(partial(_jobs, ids=each.ids[start : start + STEP]))
        if isinstance(answer, Err):
            return answer
        for job in answer.value:
            if job.status is not TaskStatus.PENDING:
                continue  # a worker has claimed it in the meantime
            reading.tried += 1
            if why := _problem(task, job):
                reading.unreadable += 1
                reading.example, reading.why = reading.example or job.id, reading.why or why
    return Ok(reading)


def _jobs(conn: psycopg.AsyncConnection[Any], ids: Sequence[str]) -> Awaitable[list[Job]]:
    return task_reads.jobs(conn, ids)


def _problem(task: TaskFunction[Any, Any], job: Job) -> str | None:
    try:
        task.codec.arguments.decode(job.args_json, job.kwargs_json)
    except Exception as problem:  # the user's validators can raise anything, and would fail the task too
        return str(problem) or type(problem).__name__
    return None


def _unknown(each: WaitingTasks, names: list[str]) -> errors.HorsiesError:
    near = get_close_matches(each.task_name, names, n=1)
    return errors.RegistryError(
        f"no module defines the task {each.task_name!r}, but {each.amount} of that name wait in {_queues(each)}",
        code=errors.ErrorCode.TASK_NOT_REGISTERED,
        notes=[f"for example {each.ids[0]}", _LEFT],
        help_text=(f"was it renamed to {near[0]}? " if near else "")
        + "Keep the task under its old name until none is waiting, or cancel the waiting ones",
    )


def _unreadable(each: WaitingTasks, task: TaskFunction[Any, Any], read: ArgumentsRead) -> errors.HorsiesError:
    is_exact = each.are_all and read.tried == each.count
    seen = f"the {read.tried}" if is_exact else f"the first {read.tried}"
    leaves = "leaves it to others, and after unknown_task_grace_ms " if task.leave_undecodable_ms else ""
    notes = [
        f"for example {read.example}: {read.why}",
        f"a worker that takes one {leaves}fails it with WORKER_SERIALIZATION_ERROR",
    ]
    if not is_exact:
        notes.append(f"{each.amount} wait in {_queues(each)}; the others were not checked")
    return errors.ConfigurationError(
        f"task {each.task_name!r} cannot read the arguments of {read.unreadable} of {seen} waiting tasks",
        code=errors.ErrorCode.CHECK_WAITING_UNREADABLE,
        location=task.location,
        notes=notes,
        help_text="let the task also accept the old arguments (a default, a union, accepts=[...]) until none waits",
    )


def _queues(each: WaitingTasks) -> str:
    named = ", ".join(repr(queue) for queue in each.queues)
    return f"queue {named}" if len(each.queues) == 1 else f"queues {named}"


def _stored_problems(subject: CheckedApp, stored: schedules.StoredSchedule) -> Iterator[errors.HorsiesError]:
    report = errors.ValidationReport(phase="a schedule")
    try:
        for error in schedule_problems(subject.app, read(stored), is_stored=True):
            report.add(error)
    except Exception as problem:  # the app's own models, which check the arguments, can raise anything
        report.add(problem if isinstance(problem, errors.HorsiesError) else unusable(describe(problem)))
        for finding in report:
            finding.message = f"schedule {stored.name!r}: {finding.message}"
    for finding in report:
        finding.location = None  # it would be the place where the check was called
        yield finding.with_note(_WHERE)


class CheckConnection:
    """One connection, which lives on the broker's loop."""

    def __init__(self, broker: PostgresBroker) -> None:
        self._broker = broker
        self._conn: psycopg.AsyncConnection[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._conn is not None:
            self._broker.bridge.run(self._conn.close)

    def ask(self, question: Question[T]) -> BrokerResult[T]:
        """The answer, or why there is none."""
        try:
            return self._broker.bridge.run(partial(self._ask, question))
        except BridgeError as error:
            return Err(broker_error(BrokerErrorCode.LOOP_RUNNER_FAILED, error))

    @as_broker_result(BrokerErrorCode.DB_OPERATION_FAILED)
    async def _ask(self, question: Question[T]) -> T:
        if self._conn is None:
            self._conn = await connect(self._broker.config, name="horsies check", options=BY_INDEX)
            await refuse_unfit(self._conn)
        return await question(self._conn)


def no_answer(answer: Err[Any]) -> Iterator[errors.HorsiesError]:
    """The finding for a query that failed. There is none if the tables do not exist yet, because then they contain
    nothing."""
    match answer.error.exception:
        case psycopg.errors.UndefinedTable():
            return
        case psycopg.errors.UndefinedColumn() | psycopg.errors.UndefinedFunction():
            yield errors.CheckWarning(
                "the tables are of an older version, so their contents could not be checked",
                code=errors.ErrorCode.BROKER_INIT_FAILED,
                help_text="horsies init-db upgrades them, and so does the first worker that starts",
            )
        case errors.HorsiesError() as problem:
            problem.location = None  # it would be the place where the check was called
            yield problem
        case _:
            text = f"{headline_of(answer.error.message)}: {answer.error.message}"
            yield errors.ConfigurationError(text, code=errors.ErrorCode.BROKER_INIT_FAILED)
