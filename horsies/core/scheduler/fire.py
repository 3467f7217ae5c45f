"""One transaction of the scheduler: it locks some schedules, reads their states again, sends what is due and writes the
new states (S-32). What the scheduler logs about that is here too.

Only the database's clock is used (S-43), and the id of a task is computed from its slot (S-34). Therefore one slot
makes one task, even if two schedulers reach this point for it, or if the state is lost. `plan.py` decides what is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import perf_counter

import psycopg

from horsies.core import logs
from horsies.core.db import Connection
from horsies.core.producer import enqueue, envelope
from horsies.core.scheduler import plan, timetable
from horsies.core.store import schedules
from horsies.core.store import schedules as store
from horsies.core.store.sends import Send, insert
from horsies.core.text import counted

log = logging.getLogger("horsies.scheduler")

MOST_SLOTS = 100  # slots of one schedule in one transaction
UNBROKEN_S = 0.005  # planning never blocks the loop for longer than this
APART = timedelta(microseconds=1)
NOT_AHEAD = timedelta(0)
NAMES = 10
MANY_MISSES = 16


class StateLocked(Exception):
    """A state can neither be read nor written for a while. This concerns only one schedule, unlike a lock on a
    table."""


@dataclass(slots=True)
class FireResult:
    """The outcome for the schedules of one transaction."""

    now: datetime | None = None  # what the schedules were compared with
    steps: dict[str, plan.Step] = field(default_factory=dict)  # what was done for each schedule
    left: set[str] = field(default_factory=set)  # another process holds them
    stale: set[str] = field(default_factory=set)  # changed at run time since they were read
    unprepared: set[str] = field(default_factory=set)  # due, but without a payload
    sent: dict[str, int] = field(default_factory=dict)


async def fire(
    conn: Connection,
    entries: Sequence[timetable.Entry],
    slots_left: Callable[[timetable.Entry], int],
    ahead: timedelta = NOT_AHEAD,
) -> FireResult:
    """Send the runs of these schedules that are due, or will be due when `ahead` has passed. Call this in a
    transaction, which makes it all or nothing."""
    done = FireResult()
    by_name = {entry.name: entry for entry in entries}
    held = await store.try_lock(conn, sorted(by_name))
    done.left = set(by_name) - set(held.names)
    if held.now is None:
        return done
    done.now = held.now + ahead
    mine = await _unchanged(conn, [by_name[name] for name in held.names], done)
    states = await store.lock_states(conn, [entry.name for entry in mine])
    loop_break = LoopBreak()
    for entry in mine:
        _decide(entry, states.get(entry.name), done.now, slots_left(entry), done)
        await loop_break.take()
    await _write(conn, by_name, states, done, held.now, loop_break)
    return done


async def _unchanged(conn: Connection, entries: Sequence[timetable.Entry], done: FireResult) -> list[timetable.Entry]:
    """Whether a run-time schedule, under its lock, is still as we know it; otherwise it was removed, paused or
    changed."""
    stored = [entry for entry in entries if entry.changed_at is not None]
    if not stored:
        return list(entries)
    marks = await store.marks_of(conn, [entry.name for entry in stored])
    for entry in stored:
        mark = marks.get(entry.name)
        if mark is None or mark.paused or mark.changed_at != entry.changed_at:
            done.stale.add(entry.name)
    return [entry for entry in entries if entry.name not in done.stale]


def _decide(
    entry: timetable.Entry, state: schedules.ScheduleState | None, now: datetime, most: int, done: FireResult
) -> None:
    step = plan.decide(entry.schedule, state, now, min(most, MOST_SLOTS), entry.config_hash)
    if isinstance(step, plan.Fire) and entry.payload is None:
        done.unprepared.add(entry.name)
    else:
        done.steps[entry.name] = step


async def _write(
    conn: Connection,
    by_name: dict[str, timetable.Entry],
    states: dict[str, schedules.ScheduleState],
    done: FireResult,
    now: datetime,
    loop_break: LoopBreak,
) -> None:
    sends = {
        name: await _sends(by_name[name], step, now, loop_break)
        for name, step in done.steps.items()
        if isinstance(step, plan.Fire)
    }
    written = await _insert(conn, [send for some in sends.values() for send in some], now)
    new: list[schedules.Advance] = []
    known: list[schedules.Advance] = []
    for name, step in done.steps.items():
        fingerprint = by_name[name].config_hash
        if isinstance(step, plan.Fire):
            done.sent[name] = sum(send.task_id in written for send in sends[name])
            last = (step.slots[-1], sends[name][-1].task_id, done.sent[name])
            known.append(schedules.Advance(name, step.next_run_at, fingerprint, *last))
        elif isinstance(step, plan.Begin | plan.Restart):
            (known if name in states else new).append(schedules.Advance(name, step.next_run_at, fingerprint))
    if known:
        await store.advance(conn, known)
    if new:
        # If the row exists after all, another process keeps it locked.
        locked = {row.name for row in new} - await _begin(conn, new)
        done.left |= locked
        for name in locked:
            del done.steps[name]


async def _begin(conn: Connection, new: Sequence[schedules.Advance]) -> set[str]:
    try:
        return await store.begin(conn, new)
    except psycopg.errors.LockNotAvailable as problem:
        raise StateLocked("a process that is not a scheduler holds a lock on its state") from problem


async def _sends(entry: timetable.Entry, step: plan.Fire, now: datetime, loop_break: LoopBreak) -> list[Send]:
    """One task for each slot. Their times differ slightly, so that the oldest slot is also the first in the queue."""
    assert entry.payload is not None
    made: list[Send] = []
    for place, slot in enumerate(reversed(step.slots)):
        payload = envelope.with_sha(replace(entry.payload, sent_at=now - place * APART))
        made.append(Send(plan.slot_task_id(entry.name, slot), payload))
        await loop_break.take()
    return made[::-1]


async def _insert(conn: Connection, sends: Sequence[Send], now: datetime) -> set[str]:
    """The ordinary insert; return the ids that were not there before."""
    written: set[str] = set()
    for places in enqueue.chunks(sends):
        statement = insert([sends[place] for place in places], now)
        cursor = await conn.execute(statement.text, statement.params, prepare=True)
        written |= {task_id for (task_id,) in await cursor.fetchall()}
    return written


class LoopBreak:
    """Yields to the loop every few milliseconds."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def take(self) -> None:
        if perf_counter() - self._since > UNBROKEN_S:
            await asyncio.sleep(0)
            self._since = perf_counter()


def report(entries: Sequence[timetable.Entry], done: FireResult) -> None:
    for entry in entries:
        step = done.steps.get(entry.name)
        if isinstance(step, plan.Restart):
            log.warning(
                "schedule %r has another pattern or time zone than before: its next run is %s, what was missed is "
                "dropped", entry.name, _shown(step.next_run_at),
            )  # fmt: skip
        elif isinstance(step, plan.Begin):
            log.info("new schedule %r: its first run is %s", entry.name, _shown(step.next_run_at))
        if step is not None and step.next_run_at is None:
            log.error("schedule %r has no run within eight years: it will not run again", entry.name)
    fired = {name: count for name, count in done.sent.items() if count}
    if fired:
        names = sorted(fired)
        shown = ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")
        log.info("%s sent for %s", counted(sum(fired.values()), "task"), shown)


def complain(entry: timetable.Entry, why: str) -> None:
    """It could not be sent, and is tried again and again."""
    entry.failures += 1
    if logs.is_worth_a_line(entry.failures):
        tries = f" ({entry.failures} times in a row)" if entry.failures > 1 else ""
        log.error("schedule %r could not be sent and will be retried: %s%s", entry.name, why, tries)


def note_missed(entry: timetable.Entry) -> None:
    """Another process holds the lock, which is reported only if it continues."""
    entry.misses += 1
    if entry.misses >= MANY_MISSES and logs.is_worth_a_line(entry.misses):
        log.warning(
            "schedule %r is due, but another process has kept it locked during the last %d checks", entry.name,
            entry.misses,
        )  # fmt: skip


def _shown(at: datetime | None) -> str:
    return "never" if at is None else at.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
