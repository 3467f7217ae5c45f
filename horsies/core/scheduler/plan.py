"""What to do about a schedule: begin, restart, send or wait (S-31 to S-38). Pure: the time is passed in."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TypeAlias
from uuid import NAMESPACE_OID, UUID, uuid5

from horsies.core.models.schedule import TaskSchedule
from horsies.core.scheduler.calendar import latest_occurrence, next_occurrence
from horsies.core.store.schedules import ScheduleState

SLOTS = uuid5(NAMESPACE_OID, "horsies:schedule")


@dataclass(frozen=True, slots=True)
class Begin:
    """Seen for the first time, or added again: nothing is sent (S-31)."""

    next_run_at: datetime | None


@dataclass(frozen=True, slots=True)
class Restart:
    """Its pattern or time zone has changed: missed slots of the old one are dropped (S-37)."""

    next_run_at: datetime | None


@dataclass(frozen=True, slots=True)
class Fire:
    """Send a task for each of these slots, the oldest first."""

    slots: tuple[datetime, ...]
    next_run_at: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Not due."""

    next_run_at: datetime | None


Step: TypeAlias = Begin | Restart | Fire | Wait


def decide(
    schedule: TaskSchedule,
    state: ScheduleState | None,
    now: datetime,
    most: int | None = None,
    own_hash: str | None = None,
) -> Step:
    """The next step of an enabled schedule. `most` limits the number of slots that one step catches up."""
    if state is None or (state.next_run_at is None and state.config_hash is None):
        return Begin(_next(schedule, now))
    if state.config_hash != (own_hash or config_hash(schedule)):
        return Restart(_next(schedule, now))
    if state.next_run_at is None:
        return Begin(_next(schedule, now))
    if state.next_run_at > now:
        return Wait(state.next_run_at)
    if schedule.catch_up_missed:
        allowed = schedule.max_catch_up_runs if most is None else min(most, schedule.max_catch_up_runs)
        return _catch_up(schedule, state.next_run_at, now, allowed)
    slot = latest_occurrence(schedule.pattern, state.next_run_at, now, schedule.timezone) or state.next_run_at
    return Fire((slot,), _next(schedule, slot))


def config_hash(schedule: TaskSchedule) -> str:
    """Changes when the next run changes (S-37): it covers pattern and time zone, not arguments, queue or catch-up."""
    fields = schedule.pattern.model_dump(mode="json")
    described = {"pattern": type(schedule.pattern).__name__, "fields": fields, "timezone": schedule.timezone}
    return sha256(json.dumps(described, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def slot_task_id(name: str, slot: datetime) -> str:
    """The id of the task of one slot; it is the same for every scheduler (S-34). It begins with the time of the slot,
    as the ids of other tasks begin with that of sending, so lists by id show it among those. Version 8 is for ids that
    are made in a way of one's own."""
    hashed = uuid5(SLOTS, f"{slot.astimezone(UTC).isoformat(timespec='microseconds')} {name}").int
    milliseconds = max(0, int(slot.timestamp() * 1000))
    return str(UUID(int=milliseconds << 80 | hashed & ~(0xF << 76) & (1 << 80) - 1 | 0x8 << 76))


def _catch_up(schedule: TaskSchedule, first: datetime, now: datetime, most: int) -> Fire:
    slots = [first]
    following = _next(schedule, first)
    while following is not None and following <= now and len(slots) < most:
        slots.append(following)
        following = _next(schedule, following)
    return Fire(tuple(slots), following)


def _next(schedule: TaskSchedule, after: datetime) -> datetime | None:
    return next_occurrence(schedule.pattern, after, schedule.timezone)
