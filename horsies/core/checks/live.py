"""Phase 5, only in a live check: the database answers, and the tasks and schedules in it fit the present code.

Only the app's own queues are read, since others may be another app's, and of each only the first tasks in the order in
which they will be claimed. If that was not everything, the finding says so. Arguments are decoded in the caller's
thread and not on the broker's loop, because that runs validators of the user's types.

The database is asked through `CheckConnection`, which changes nothing. The broker's own connections would create or
migrate the tables first. A check must not do that, because it may run with code that is not deployed yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
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
from horsies.core.models.broker import BrokerErrorCode, BrokerResult
from horsies.core.scheduler.payloads import read, schedule_problems, unusable
from horsies.core.schema.install import refuse_unfit
from horsies.core.store import schedules, task_reads
from horsies.core.types import Err

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.task_decorator import TaskFunction

T = TypeVar("T")
Question: TypeAlias = Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]

MOST = 1_000  # tasks of each queue,
STEP = 100  # whose arguments are in memory so many at a time
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
    tasks, found = subject.app.tasks, _Found()
    for queue in sorted(subject.app.queue_names):
        for skip in range(0, MOST, STEP):
            page = visit.ask(partial(task_reads.waiting, queue=queue, skip=skip, most=STEP))
            if isinstance(page, Err):
                yield from no_answer(page)
                return
            for task in page.value:
                found.add(queue, task, tasks.get(task.task_name))
            if len(page.value) < STEP:
                break
        else:
            found.are_all = False
    for name, each in sorted(found.by_name.items()):
        if name not in tasks:
            yield _unknown(name, each, found.are_all, list(tasks))
        elif each.unreadable:
            yield _unreadable(tasks[name], each, found.are_all)


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


@dataclass(slots=True)
class _OfOneName:
    """How many tasks of one name wait, in which queues, and how many of them cannot be read, each with the first."""

    first: str
    queues: set[str] = field(default_factory=set)
    count: int = 0
    unreadable: int = 0
    example: str = ""


@dataclass(slots=True)
class _Found:
    """What waits, by name, and whether these are all."""

    by_name: dict[str, _OfOneName] = field(default_factory=dict)
    are_all: bool = True

    def add(self, queue: str, task: task_reads.WaitingTask, definition: TaskFunction[Any, Any] | None) -> None:
        each = self.by_name.setdefault(task.task_name, _OfOneName(task.task_id))
        each.queues.add(queue)
        each.count += 1
        if definition is not None and (why := _problem(definition, task)):
            each.unreadable += 1
            each.example = each.example or f"{task.task_id}: {why}"


def _problem(definition: TaskFunction[Any, Any], task: task_reads.WaitingTask) -> str | None:
    try:
        definition.codec.arguments.decode(task.args, task.kwargs)
    except Exception as problem:  # the user's validators can raise anything, and would fail the task too
        return str(problem) or type(problem).__name__
    return None


def _unknown(name: str, each: _OfOneName, are_all: bool, names: list[str]) -> errors.HorsiesError:
    near = get_close_matches(name, names, n=1)
    queues = ", ".join(map(repr, sorted(each.queues)))
    return errors.RegistryError(
        f"no module defines the task {name!r}, but {'' if are_all else 'at least '}{each.count} of that name wait in "
        f"{'queue' if len(each.queues) == 1 else 'queues'} {queues}",
        code=errors.ErrorCode.TASK_NOT_REGISTERED,
        notes=[f"for example {each.first}", _LEFT],
        help_text=(f"was it renamed to {near[0]}? " if near else "")
        + "Keep the task under its old name until none is waiting, or cancel the waiting ones",
    )


def _unreadable(task: TaskFunction[Any, Any], each: _OfOneName, are_all: bool) -> errors.HorsiesError:
    leaves = "leaves it to others, and after unknown_task_grace_ms " if task.leave_undecodable_ms else ""
    notes = [
        f"for example {each.example}",
        f"a worker that takes one {leaves}fails it with WORKER_SERIALIZATION_ERROR",
    ]
    if not are_all:
        notes.append(f"only the first {MOST:,} waiting tasks of each queue were checked")
    return errors.ConfigurationError(
        f"task {task.task_name!r} cannot read the arguments of {each.unreadable} of the "
        f"{'' if are_all else 'first '}{each.count} waiting tasks",
        code=errors.ErrorCode.CHECK_WAITING_UNREADABLE,
        location=task.location,
        notes=notes,
        help_text="let the task also accept the old arguments (a default, a union, accepts=[...]) until none waits",
    )


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
