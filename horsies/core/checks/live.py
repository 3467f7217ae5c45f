"""Phase 6, only with `--live`: the database answers, and the current code can run the tasks that wait in it.

Only the app's own queues are checked, because others may belong to another app. The check is bounded: it reads the
first tasks of each queue in the order of claiming, and for each name the arguments of some tasks. If there are more,
the finding says so. Arguments are decoded here and not on the broker's loop, because decoding runs validators of the
user's types.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection

from horsies.core.checks.subject import Subject
from horsies.core.checks.visit import Visit, no_answer
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, RegistryError
from horsies.core.hooks import Job
from horsies.core.models.broker import BrokerResult
from horsies.core.store import jobs, waiting
from horsies.core.store.waiting import Waiting
from horsies.core.types.result import Err, Ok
from horsies.core.types.status import TaskStatus

if TYPE_CHECKING:
    from horsies.core.task_decorator import TaskFunction

MOST = 10_000  # of each queue
SAMPLE = 500  # of each name in a queue
STEP = 100  # of which the arguments are held in memory at a time


def database(subject: Subject) -> Iterator[HorsiesError]:
    """The database answers."""
    with Visit(subject.app.get_broker()) as visit:
        answer = visit.ask(lambda conn: conn.execute("SELECT 1"))
    if isinstance(answer, Err):
        yield from no_answer(answer)


def waiting_tasks(subject: Subject, visit: Visit) -> Iterator[HorsiesError]:
    """Every waiting task is defined here, with arguments that it can read."""
    queues = sorted(subject.app.queue_names)
    found = visit.ask(lambda conn: waiting.waiting(conn, queues, most=MOST, sample=SAMPLE))
    if isinstance(found, Err):
        yield from no_answer(found)
        return
    for each in whole(found.value, MOST):
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


@dataclass(frozen=True, slots=True)
class Known:
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
class Reading:
    """How many were read, how many could not be read, and the first of these."""

    tried: int = 0
    unreadable: int = 0
    example: str = ""
    why: str = ""


def whole(found: Sequence[Waiting], most: int) -> list[Known]:
    """By name alone. If a queue was not read to its end, the total is unknown."""
    looked_at: dict[str, int] = {}
    by_name: dict[str, list[Waiting]] = {}
    for each in found:
        looked_at[each.queue_name] = looked_at.get(each.queue_name, 0) + each.tasks
        by_name.setdefault(each.task_name, []).append(each)
    is_whole = all(count < most for count in looked_at.values())
    return [
        Known(
            name,
            tuple(part.queue_name for part in parts),
            sum(part.tasks for part in parts),
            tuple(task_id for part in parts for task_id in part.ids),
            is_whole,
        )
        for name, parts in sorted(by_name.items())
    ]


def _read(visit: Visit, task: TaskFunction[Any, Any], each: Known) -> BrokerResult[Reading]:
    reading = Reading()
    for start in range(0, len(each.ids), STEP):
        answer = visit.ask(partial(_jobs, ids=each.ids[start : start + STEP]))
        if isinstance(answer, Err):
            return answer
        for job in answer.value:
            if job.status is not TaskStatus.PENDING:
                continue  # somebody has taken it meanwhile
            reading.tried += 1
            if why := _problem(task, job):
                reading.unreadable += 1
                reading.example, reading.why = reading.example or job.id, reading.why or why
    return Ok(reading)


def _jobs(conn: AsyncConnection[Any], ids: Sequence[str]) -> Awaitable[list[Job]]:
    return jobs.jobs(conn, ids)


def _problem(task: TaskFunction[Any, Any], job: Job) -> str | None:
    try:
        task.codec.arguments.decode(job.args_json, job.kwargs_json)
    except Exception as problem:  # what a validator of the user's raises included: a worker would fail the task as well
        return str(problem) or type(problem).__name__
    return None


def _unknown(each: Known, names: list[str]) -> HorsiesError:
    near = get_close_matches(each.task_name, names, n=1)
    return RegistryError(
        f"no module defines the task {each.task_name!r}, but {each.amount} of that name wait in {_queues(each)}",
        code=ErrorCode.TASK_NOT_REGISTERED,
        notes=[f"for example {each.ids[0]}", "a worker that takes one fails it with WORKER_RESOLUTION_ERROR"],
        help_text=(f"was it renamed to {near[0]}? " if near else "")
        + "Keep the task under its old name until none is waiting, or cancel the waiting ones",
    )


def _unreadable(each: Known, task: TaskFunction[Any, Any], read: Reading) -> HorsiesError:
    is_exact = each.are_all and read.tried == each.count
    seen = f"the {read.tried}" if is_exact else f"the first {read.tried}"
    notes = [
        f"for example {read.example}: {read.why}",
        "a worker that takes one fails it with WORKER_SERIALIZATION_ERROR",
    ]
    if not is_exact:
        notes.append(f"{each.amount} wait in {_queues(each)}; the others were not checked")
    return ConfigurationError(
        f"task {each.task_name!r} cannot read the arguments of {read.unreadable} of {seen} waiting tasks",
        code=ErrorCode.CHECK_WAITING_UNREADABLE,
        location=task.location,
        notes=notes,
        help_text="let the task also accept the old arguments (a default, a union) until none is waiting",
    )


def _queues(each: Known) -> str:
    named = ", ".join(repr(queue) for queue in each.queues)
    return f"queue {named}" if len(each.queues) == 1 else f"queues {named}"
