"""The operations on schedules: firing one as a scheduler does, and changing it at run time. The lock of a schedule
keeps those that are about it apart; of the two schedules one has been seen before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from horsies.core.store import schedules
from horsies.core.store.schedules import Advance
from tests.proof_pairs.choices import Choices
from tests.proof_pairs.kinds import LEFT_TO_ANOTHER, SCHEDULERS, Arguments, Kind
from tests.proof_pairs.rows import Start
from tests.proof_pairs.stage import T0


def _names(start: Start, arguments: Arguments) -> set[str]:
    return {SCHEDULERS[arguments["name"]], f"schedule {arguments['name']}"}


def _about_one(**choices: tuple[Any, ...]) -> Callable[[Choices, Start], Arguments]:
    return lambda pick, start: {
        "name": pick.of(list(SCHEDULERS)),
        **{name: pick.of(values) for name, values in choices.items()},
    }


async def _fire(conn: AsyncConnection[Any], name: str, hours: int) -> Any:
    """What a check does about a schedule that is new or due: lock, read, write."""
    async with conn.transaction():
        held = await schedules.try_lock(conn, [name])
        if not held.names:
            return LEFT_TO_ANOTHER
        marks = await schedules.marks_of(conn, [name])
        slot = T0 + timedelta(hours=hours)
        if await schedules.lock_states(conn, [name]):
            await schedules.advance(conn, [Advance(name, slot, "hash", slot, f"task-{hours}", 1)])
            return "fired", len(marks)
        return "begun", await schedules.begin(conn, [Advance(name, slot, "hash")])


def _changing(change: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """As `app.schedules` does it: under the lock of the schedule."""

    async def run(conn: AsyncConnection[Any], name: str, **arguments: Any) -> Any:
        async with conn.transaction():
            await schedules.lock(conn, name)
            return await change(conn, name, **arguments)

    return run


async def _put(conn: AsyncConnection[Any], name: str, definition: str) -> bool:
    is_new = await schedules.put(conn, name, definition)
    if is_new:
        await schedules.restart(conn, name)
    await schedules.bump(conn)
    return is_new


async def _pause(conn: AsyncConnection[Any], name: str, paused: bool) -> bool:
    is_there = await schedules.pause(conn, name, paused)
    await schedules.bump(conn)
    return is_there


async def _remove(conn: AsyncConnection[Any], name: str) -> bool:
    is_there = await schedules.remove(conn, name)
    await schedules.bump(conn)
    return is_there


async def _trigger(conn: AsyncConnection[Any], name: str, task_id: str) -> None:
    await schedules.triggered(conn, name, task_id)


SCHEDULE_KINDS = (
    Kind(
        "fire schedule",
        _fire,
        _about_one(hours=(1, 2, 3)),
        _names,
        uses=(schedules.try_lock, schedules.lock_states, schedules.advance, schedules.begin),
        skips=True,
        waits=False,
        statements=4,
    ),
    Kind(
        "put schedule",
        _changing(_put),
        _about_one(definition=('{"args": [1]}', '{"args": [2]}')),
        _names,
        uses=(schedules.lock, schedules.put, schedules.restart, schedules.bump),
        statements=4,
    ),
    Kind(
        "pause schedule",
        _changing(_pause),
        _about_one(paused=(True, False)),
        _names,
        uses=(schedules.lock, schedules.pause, schedules.bump),
        statements=3,
    ),
    Kind(
        "remove schedule",
        _changing(_remove),
        _about_one(),
        _names,
        uses=(schedules.lock, schedules.remove, schedules.bump),
        statements=3,
    ),
    Kind(
        "trigger schedule",
        _changing(_trigger),
        _about_one(task_id=("t1", "t2")),
        _names,
        uses=(schedules.lock, schedules.triggered),
        statements=2,
    ),
)
