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
from typing import Any

import psycopg

from horsies.core import logs
from horsies.core.db import Connection
from horsies.core.models.schedule import TaskSchedule
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.producer import enqueue, envelope
from horsies.core.scheduler import plan
from horsies.core.store import schedules as store
from horsies.core.store.sends import Send, insert
from horsies.core.text import counted

log = logging.getLogger("horsies.scheduler")

MOST_SLOTS = 100  # slots of one schedule in one transaction
APART = timedelta(microseconds=1)
NOT_AHEAD = timedelta(0)
NAMES = 10
MANY_MISSES = 16


class StateLocked(Exception):
    """A state can neither be read nor written for a while. This concerns only one schedule, unlike a lock on a
    table."""


@dataclass(slots=True, eq=False)
class Entry:
    """An enabled schedule. `changed_at` and `definition` belong to a run-time schedule; a schedule of the code has
    neither."""

    schedule: TaskSchedule
    changed_at: datetime | None = None
    definition: dict[str, Any] | None = field(default=None, repr=False)
    config_hash: str = ""
    payload: TaskSendPayload | None = field(default=None, repr=False)
    failures: int = 0  # in a row
    misses: int = 0  # checks in a row at which another process held it

    def __post_init__(self) -> None:
        self.config_hash = plan.config_hash(self.schedule)

    @property
    def name(self) -> str:
        return self.schedule.name


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
    entries: Sequence[Entry],
    slots_left: Callable[[Entry], int],
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
    for entry in mine:
        _decide(entry, states.get(entry.name), done.now, slots_left(entry), done)
        await asyncio.sleep(0)
    await _write(conn, by_name, states, done, held.now)
    return done


async def _unchanged(conn: Connection, entries: Sequence[Entry], done: FireResult) -> list[Entry]:
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


def _decide(entry: Entry, state: store.ScheduleState | None, now: datetime, most: int, done: FireResult) -> None:
    step = plan.decide(entry.schedule, state, now, min(most, MOST_SLOTS), entry.config_hash)
    if isinstance(step, plan.Fire) and entry.payload is None:
        done.unprepared.add(entry.name)
    else:
        done.steps[entry.name] = step


async def _write(
    conn: Connection,
    by_name: dict[str, Entry],
    states: dict[str, store.ScheduleState],
    done: FireResult,
    now: datetime,
) -> None:
    sends: dict[str, list[Send]] = {}
    for name, step in done.steps.items():
        if isinstance(step, plan.Fire):
            sends[name] = _sends(by_name[name], step, now)
            await asyncio.sleep(0)
    written = await _insert(conn, [send for some in sends.values() for send in some], now)
    new: list[store.Advance] = []
    known: list[store.Advance] = []
    for name, step in done.steps.items():
        fingerprint = by_name[name].config_hash
        if isinstance(step, plan.Fire):
            done.sent[name] = sum(send.task_id in written for send in sends[name])
            last = (step.slots[-1], sends[name][-1].task_id, done.sent[name])
            known.append(store.Advance(name, step.next_run_at, fingerprint, *last))
        elif isinstance(step, plan.Begin | plan.Restart):
            (known if name in states else new).append(store.Advance(name, step.next_run_at, fingerprint))
    if known:
        await store.advance(conn, known)
    if new:
        # If the row exists after all, another process keeps it locked.
        try:
            begun = await store.begin(conn, new)
        except psycopg.errors.LockNotAvailable as problem:
            raise StateLocked("a process that is not a scheduler holds a lock on its state") from problem
        locked = {row.name for row in new} - begun
        done.left |= locked
        for name in locked:
            del done.steps[name]


def _sends(entry: Entry, step: plan.Fire, now: datetime) -> list[Send]:
    """One task for each slot. Their times differ slightly, so that the oldest slot is also the first in the queue."""
    assert entry.payload is not None
    made: list[Send] = []
    for place, slot in enumerate(reversed(step.slots)):
        payload = envelope.with_sha(replace(entry.payload, sent_at=now - place * APART))
        made.append(Send(plan.slot_task_id(entry.name, slot), payload))
    return made[::-1]


async def _insert(conn: Connection, sends: Sequence[Send], now: datetime) -> set[str]:
    """The ordinary insert; return the ids that were not there before."""
    written: set[str] = set()
    for places in enqueue.chunks(sends):
        statement = insert([sends[place] for place in places], now)
        cursor = await conn.execute(statement.text, statement.params, prepare=True)
        written |= {task_id for (task_id,) in await cursor.fetchall()}
    return written


def report(entries: Sequence[Entry], done: FireResult) -> None:
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


def complain(entry: Entry, why: str) -> None:
    """It could not be sent, and is tried again and again."""
    entry.failures += 1
    if logs.is_worth_a_line(entry.failures):
        tries = f" ({entry.failures} times in a row)" if entry.failures > 1 else ""
        log.error("schedule %r could not be sent and will be retried: %s%s", entry.name, why, tries)


def note_missed(entry: Entry) -> None:
    """Another process holds the lock, which is reported only if it continues."""
    entry.misses += 1
    if entry.misses >= MANY_MISSES and logs.is_worth_a_line(entry.misses):
        log.warning(
            "schedule %r is due, but another process has kept it locked during the last %d checks", entry.name,
            entry.misses,
        )  # fmt: skip


def _shown(at: datetime | None) -> str:
    return "never" if at is None else at.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
