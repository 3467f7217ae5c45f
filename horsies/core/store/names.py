"""One typed function per statement about task names that workers know or do not know (O-31, O-32): the line of a queue
as a worker sees it that leaves some tasks to others, the tasks that nobody knows, and the end of those.

Positions in a line are `(enqueued_at, id)`, with the time as the server writes it. Nothing here is prepared: the arrays
of names are planned as constants, so that the server can hash them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from horsies.core.codec.serde import sanitize_text, serialize_error_payload
from horsies.core.db import Connection
from horsies.core.models.tasks import OperationalErrorCode, TaskError, TaskResult
from horsies.core.sql import load, numbers, texts

LOOK = 500  # tasks of one priority that one look reads
END = ("infinity", "")
BEGIN = ("-infinity", "")

Level: TypeAlias = tuple[str, int]  # a queue and a priority
Place: TypeAlias = tuple[str, str]


class Known(NamedTuple):
    """The names that a worker knows, and their hash."""

    names: frozenset[str]
    names_hash: str


class Stretch(NamedTuple):
    """What a look found in one priority of a queue."""

    queue: str
    priority: int
    size: int  # how many tasks
    first: int | None  # the number of the first task with a known name
    passed: Place | None  # the last place before that one
    last: Place
    others: tuple[str, ...]  # names that are not known
    other_id: str | None  # a task of one of them

    @property
    def level(self) -> Level:
        return self.queue, self.priority

    @property
    def is_cut(self) -> bool:
        """Whether there may be more behind it."""
        return self.size >= LOOK


class Line(NamedTuple):
    """What a claim may read: tasks with these names, in these parts of the line."""

    names: str  # as a bound array
    parts: tuple[tuple[Level, Place, Place], ...]  # after the first place, up to the second

    def params(self) -> dict[str, Any]:
        return {
            "names_here": self.names,
            "in_queues": texts([level[0] for level, _, _ in self.parts]),
            "in_priorities": numbers([level[1] for level, _, _ in self.parts]),
            "afters": texts([after[0] for _, after, _ in self.parts]),
            "after_ids": texts([after[1] for _, after, _ in self.parts]),
            "untils": texts([until[0] for _, _, until in self.parts]),
            "until_ids": texts([until[1] for _, _, until in self.parts]),
        }


async def look(
    conn: Connection, queues: Sequence[str], names: str, places: Mapping[Level, Place], most: int = LOOK
) -> list[Stretch]:
    """The next tasks of each priority in these queues, after these places."""
    params = {"queues": texts(queues), "names": names, "look": most, **_places(places)}
    cursor = await conn.execute(load("tasks/line"), params, prepare=False)
    return [_stretch(*row) for row in await cursor.fetchall()]


async def hand_on(conn: Connection, worker_id: str, left: Iterable[tuple[str, str]]) -> None:
    """Wake another worker for these tasks (queue and id), which this one leaves."""
    pairs = list(left)
    params = {"worker_id": worker_id, "queues": texts([q for q, _ in pairs]), "ids": texts([i for _, i in pairs])}
    await conn.execute(load("workers/hand_on"), params, prepare=False)


class UnknownTask(NamedTuple):
    """A task that waits and has a name that the worker that looks does not know."""

    id: str
    task_name: str


class OrphanedName(NamedTuple):
    """A task that was failed because nobody knows its name."""

    id: str
    workflow_id: str | None
    queue_name: str
    task_name: str


async def find_unknown(
    conn: Connection,
    queues: Sequence[str],
    names: str,
    grace: timedelta,
    places: Mapping[Level, Place],
    most: int = LOOK,
) -> tuple[list[UnknownTask], dict[Level, Place]]:
    """Those among the next tasks that have been due for longer than `grace`; and where to continue, as far as there is
    more."""
    seconds = grace.total_seconds()
    params = {"queues": texts(queues), "names": names, "grace": seconds, "look": most, **_places(places)}
    cursor = await conn.execute(load("tasks/find_unknown"), params, prepare=False)
    found: list[UnknownTask] = []
    more: dict[Level, Place] = {}
    for queue, priority, at, task_id, name, is_last, is_unknown in await cursor.fetchall():
        if is_unknown:
            found.append(UnknownTask(task_id, name))
        if is_last:
            more[queue, priority] = (at, task_id)
    return found, more


async def fail_unknown(
    conn: Connection, found: Sequence[UnknownTask], names_hash: str, grace: timedelta
) -> set[OrphanedName]:
    """PENDING → FAILED for those of these tasks whose name no live worker has known for `grace`."""
    reasons = [_reason(task, grace) for task in found]
    params = {
        "ids": texts([task.id for task in found]),
        "results": texts([_result(reason) for reason in reasons]),
        "reasons": texts(reasons),
        "names_hash": names_hash,
        "grace": grace.total_seconds(),
    }
    cursor = await conn.execute(load("tasks/fail_unknown"), params, prepare=False)
    return {OrphanedName(*row) for row in await cursor.fetchall()}


async def prune(conn: Connection, age: timedelta, most: int) -> int:
    """Delete what nobody needs any more about names and left tasks; return of how many tasks."""
    cursor = await conn.execute(load("workers/prune_names"), {"age": age, "most": most}, prepare=False)
    return cursor.rowcount


def hash_of(names: Iterable[str]) -> str:
    """The same for the same names, in whatever order."""
    return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()[:32]


def _stretch(
    queue: str,
    priority: int,
    size: int,
    first: int | None,
    passed: str | None,
    passed_id: str | None,
    last: str,
    last_id: str,
    others: list[str] | None,
    other_id: str | None,
) -> Stretch:
    before = None if passed is None or passed_id is None else (passed, passed_id)
    return Stretch(queue, priority, size, first, before, (last, last_id), tuple(others or ()), other_id)


def _reason(task: UnknownTask, grace: timedelta) -> str:
    return sanitize_text(f"no live worker has known a task named {task.task_name!r} for {grace.total_seconds():g} s")


def _result(reason: str) -> str:
    error = TaskError(error_code=OperationalErrorCode.WORKER_RESOLUTION_ERROR, message=reason)
    return serialize_error_payload(TaskResult(err=error))


def _places(places: Mapping[Level, Place]) -> dict[str, Any]:
    return {
        "at_queues": texts([queue for queue, _ in places]),
        "at_priorities": numbers([priority for _, priority in places]),
        "ats": texts([at for at, _ in places.values()]),
        "at_ids": texts([task_id for _, task_id in places.values()]),
    }
