"""One typed function for each statement about schedules: their states (D-35), and those added at run time (D-36)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import to_json

from horsies.core.db import Connection
from horsies.core.schema.install import lock_key, schedule_purpose
from horsies.core.sql import load, numbers, texts

# The statements return this for 'infinity' and other instants that Python cannot represent. It will not come.
FAR_OFF = datetime(9999, 12, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """What the database stores about a schedule (D-35)."""

    name: str
    last_run_at: datetime | None
    next_run_at: datetime | None
    last_task_id: str | None
    run_count: int
    config_hash: str | None


class Look(NamedTuple):
    """The database's time, and a number that every change of a run-time schedule raises."""

    now: datetime
    version: int


class NextRun(NamedTuple):
    """When a schedule is due. None: its state is missing, or that of another configuration."""

    name: str
    at: datetime | None
    now: datetime


class LockedSchedules(NamedTuple):
    """The schedules whose locks this transaction holds, and its time."""

    names: list[str]
    now: datetime | None


class Mark(NamedTuple):
    """When a run-time schedule was last changed, and whether it is paused."""

    changed_at: datetime
    paused: bool


class StoredSchedule(NamedTuple):
    """A run-time schedule as it is stored. `problem`: why its definition cannot be read. `mark` is None if it was
    removed."""

    name: str
    definition: Any
    mark: Mark | None
    problem: str | None = None

    @property
    def paused(self) -> bool:
        return self.mark is not None and self.mark.paused


class Advance(NamedTuple):
    """The new state of a schedule: where it continues, and what was sent for it."""

    name: str
    next_run_at: datetime | None
    config_hash: str
    last_run_at: datetime | None = None
    last_task_id: str | None = None
    runs: int = 0


async def look(conn: Connection) -> Look:
    [row] = await (await conn.execute(load("schedules/look"))).fetchall()
    return Look(*row)


async def due(conn: Connection, names: str, hashes: str, most: int) -> list[NextRun]:
    """The next of these schedules, those that have to begin first. Names and hashes are `texts`, because they are
    the same in most calls and there are many."""
    cursor = await conn.execute(load("schedules/due"), {"names": names, "hashes": hashes, "most": most}, prepare=True)
    return [NextRun(*row) for row in await cursor.fetchall()]


async def states(conn: Connection, names: Sequence[str]) -> dict[str, ScheduleState]:
    """The states of these schedules; those without a row are left out."""
    cursor = await conn.execute(load("schedules/states"), {"names": texts(names)})
    return {row[0]: ScheduleState(*row) for row in await cursor.fetchall()}


async def try_lock(conn: Connection, names: Sequence[str]) -> LockedSchedules:
    """Take the locks of these schedules for the rest of the transaction, except those that are held elsewhere."""
    keys = [lock_key(schedule_purpose(name)) for name in names]
    cursor = await conn.execute(load("schedules/try_lock"), {"names": texts(names), "keys": numbers(keys)})
    rows = await cursor.fetchall()
    return LockedSchedules([name for name, _ in rows], rows[0][1] if rows else None)


async def lock(conn: Connection, name: str) -> None:
    """Take the lock of one schedule for the rest of the transaction; wait until it is free."""
    await conn.execute(load("schedules/lock"), {"key": lock_key(schedule_purpose(name))})


async def lock_states(conn: Connection, names: Sequence[str]) -> dict[str, ScheduleState]:
    """Lock the rows of these schedules and read them; rows that are missing or locked elsewhere are left out."""
    cursor = await conn.execute(load("schedules/lock_states"), {"names": texts(names)})
    return {row[0]: ScheduleState(*row) for row in await cursor.fetchall()}


async def begin(conn: Connection, rows: Iterable[Advance]) -> set[str]:
    """Write the first states; return the names of those that had none."""
    cursor = await conn.execute(load("schedules/begin"), {"rows": _json(rows)})
    return {name for (name,) in await cursor.fetchall()}


async def advance(conn: Connection, rows: Iterable[Advance]) -> None:
    """Write new states. The caller holds the locks of these rows."""
    await conn.execute(load("schedules/advance"), {"rows": _json(rows)})


async def marks_of(conn: Connection, names: Sequence[str]) -> dict[str, Mark]:
    """The marks of these run-time schedules; one that was removed is left out."""
    cursor = await conn.execute(load("schedules/marks_of"), {"names": texts(names)})
    return {row[0]: Mark(*row[1:]) for row in await cursor.fetchall()}


async def definitions(conn: Connection, names: Sequence[str]) -> list[StoredSchedule]:
    """These run-time schedules, in the order of their names."""
    cursor = await conn.execute(load("schedules/definitions"), {"names": texts(names)})
    return [_stored(*row) for row in await cursor.fetchall()]


async def changes(conn: Connection, known: Mapping[str, Mark], most: int | None = None) -> list[StoredSchedule]:
    """The run-time schedules that are not as `known`, by name."""
    marks = {
        "names": texts(known),
        "changed": texts(mark.changed_at.isoformat() for mark in known.values()),
        "paused": texts(str(mark.paused) for mark in known.values()),
    }
    cursor = await conn.execute(load("schedules/changes"), {**marks, "most": most})
    return [_stored(*row) for row in await cursor.fetchall()]


async def put(conn: Connection, name: str, definition: str) -> bool:
    """Write a run-time schedule; True if there was none of this name."""
    cursor = await conn.execute(load("schedules/put"), {"name": name, "definition": definition})
    [(is_new,)] = await cursor.fetchall()
    return bool(is_new)


async def pause(conn: Connection, name: str, paused: bool) -> bool:
    """Pause or resume a run-time schedule; False if there is none of this name."""
    cursor = await conn.execute(load("schedules/pause"), {"name": name, "paused": paused})
    return bool(await cursor.fetchall())


async def remove(conn: Connection, name: str) -> bool:
    """Delete a run-time schedule; False if there is none of this name."""
    return bool(await (await conn.execute(load("schedules/remove"), {"name": name})).fetchall())


async def restart(conn: Connection, name: str) -> None:
    """Let a schedule start anew, if it has a state."""
    await conn.execute(load("schedules/restart"), {"name": name})


async def bump(conn: Connection) -> None:
    """Signal to every scheduler that run-time schedules have changed."""
    await conn.execute(load("schedules/bump"))


async def triggered(conn: Connection, name: str, task_id: str) -> None:
    """Record a task that was triggered by hand, if the schedule has a state."""
    await conn.execute(load("schedules/triggered"), {"name": name, "task_id": task_id})


def _stored(name: str, definition: str | None, paused: bool | None, changed_at: datetime | None) -> StoredSchedule:
    """PostgreSQL accepts numbers and nesting depths that Python's parser refuses."""
    if definition is None or paused is None or changed_at is None:
        return StoredSchedule(name, None, None)
    mark = Mark(changed_at, paused)
    try:
        return StoredSchedule(name, json.loads(definition), mark)
    except (ValueError, RecursionError) as problem:
        return StoredSchedule(name, None, mark, f"its definition cannot be read: {problem}")


def _json(rows: Iterable[Advance]) -> str:
    return to_json([row._asdict() for row in rows]).decode()
