"""What is really stored, and where it differs from the model. Remembers what it has seen: a value that should not have
changed must be the very same, an attempt row or an ended task must stay as it was, to the last column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeAlias

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from tests.proof.model import TERMINAL, World
from tests.proof.rows import Attempt, Heartbeat, Task
from tests.proof.values import Clock, When, agrees

Row: TypeAlias = Mapping[str, Any]

CHANGING = tuple(field.name for field in fields(Task) if field.name != "request")
ATTEMPT = tuple(field.name for field in fields(Attempt))


@dataclass(frozen=True)
class Stored:
    """The rows of all tables at one moment, and the database's clock just after it."""

    tasks: dict[str, Row]
    attempts: dict[str, list[Row]]
    beats: Counter[Heartbeat]
    now: datetime

    def instants(self, column: str) -> dict[str, datetime]:
        return {task_id: row[column] for task_id, row in self.tasks.items()}


# All in one round trip.
EVERYTHING = """
    SELECT * FROM horsies_tasks;
    SELECT * FROM horsies_task_attempts ORDER BY id;
    SELECT task_id, role, sender_id, hostname, pid FROM horsies_heartbeats;
    SELECT clock_timestamp() AS now
"""


async def read(conn: AsyncConnection[Any]) -> Stored:
    cursor = conn.cursor(row_factory=dict_row)
    await cursor.execute(EVERYTHING)
    tasks: dict[str, Row] = {row["id"]: row for row in await cursor.fetchall()}
    attempts: dict[str, list[Row]] = {task_id: [] for task_id in tasks}
    cursor.nextset()
    for row in await cursor.fetchall():
        attempts[row["task_id"]].append(row)
    cursor.nextset()
    beats = Counter(Heartbeat(**row) for row in await cursor.fetchall())
    cursor.nextset()
    (clock,) = await cursor.fetchall()
    return Stored(tasks, attempts, beats, clock["now"])


def differences(world: World, stored: Stored, clock: Clock) -> list[str]:
    """Where the database disagrees with the model, in words."""
    found = []
    for task_id in sorted(world.tasks.keys() | stored.tasks.keys()):
        if task_id not in stored.tasks or task_id not in world.tasks:
            found.append(f"{task_id}: {'not stored' if task_id in world.tasks else 'stored, but nobody sent it'}")
            continue
        found += [f"{task_id}.{text}" for text in _of_task(world.tasks[task_id], stored.tasks[task_id], clock)]
        found += _of_attempts(task_id, world.attempts[task_id], stored.attempts[task_id], clock)
    beats = Counter(world.beats)
    if beats != stored.beats:
        found.append(f"heartbeats: missing {beats - stored.beats}, too many {stored.beats - beats}")
    return found


def _of_task(task: Task, row: Row, clock: Clock) -> Iterator[str]:
    expected = {name: getattr(task, name) for name in CHANGING} | _constant(task)
    for name, value in expected.items():
        if not agrees(value, row[name], clock):
            yield f"{name} is {_show(row[name])}, should be {_tell(value, clock)}"


def _constant(task: Task) -> dict[str, object]:
    request, wish = task.request, task.request.wish
    return {
        "id": request.task_id,
        "task_name": wish.task_name,
        "queue_name": wish.queue_name,
        "priority": wish.priority,
        "args": wish.args,
        "kwargs": None,
        "task_options": request.task_options,
        "enqueue_sha": request.sha,
        "flags": dict(wish.flags),
        "idempotency_key": wish.key,
    }


def _of_attempts(task_id: str, expected: tuple[Attempt, ...], rows: list[Row], clock: Clock) -> Iterator[str]:
    if len(expected) != len(rows):
        yield f"{task_id}: {len(rows)} attempt rows, should be {len(expected)}"
        return
    for attempt, row in zip(expected, rows, strict=True):
        for name in ATTEMPT:
            value = getattr(attempt, name)
            if not agrees(value, row[name], clock):
                where = f"{task_id}, attempt {attempt.attempt}"
                yield f"{where}: {name} is {_show(row[name])}, should be {_tell(value, clock)}"


def _show(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def _tell(value: object, clock: Clock) -> str:
    if isinstance(value, When):
        start, end = clock[value.step]
        return f"{value.low:+g}..{value.high:+g} s from {start.isoformat()}..{end.isoformat()} (step {value.step})"
    return repr(value)


class Memory:
    """What has been seen of this story so far."""

    def __init__(self) -> None:
        self._instants: dict[tuple[str, str, When], datetime] = {}
        self._attempts: dict[tuple[str, int], Row] = {}
        self._ended: dict[str, Row] = {}

    def forget_instants(self) -> None:
        """A crash may have brought back a moment in the middle of a step, which has not been seen before."""
        self._instants.clear()

    def changes(self, world: World, stored: Stored) -> list[str]:
        """What has changed though it should not have."""
        return [*self._of_instants(world, stored), *self._of_attempts(stored), *self._of_ended(stored)]

    def _of_instants(self, world: World, stored: Stored) -> Iterator[str]:
        for task_id, task in world.tasks.items():
            for name in CHANGING:
                value = getattr(task, name)
                if isinstance(value, When):
                    found = stored.tasks[task_id][name]
                    if self._instants.setdefault((task_id, name, value), found) != found:
                        yield f"{task_id}.{name} has changed"

    def _of_attempts(self, stored: Stored) -> Iterator[str]:
        now = {(row["task_id"], row["attempt"]): row for rows in stored.attempts.values() for row in rows}
        for key, row in self._attempts.items():
            if now.get(key) != row:
                yield f"attempt {key} has changed from {row} to {now.get(key)}"
        self._attempts |= now

    def _of_ended(self, stored: Stored) -> Iterator[str]:
        for task_id, row in self._ended.items():
            if stored.tasks.get(task_id) != row:
                yield f"{task_id} had ended, but has changed from {row} to {stored.tasks.get(task_id)}"
        self._ended |= {task_id: row for task_id, row in stored.tasks.items() if row["status"] in TERMINAL}
