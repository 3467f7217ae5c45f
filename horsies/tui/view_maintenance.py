"""Tab 5: what an operator looks after (M-80): how old the reports of workers are, dead workers and what they still
hold, the registry (R-43), and the schedules. Plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horsies.cli.output import count
from horsies.cli.tables import Column
from horsies.core.models.monitoring.cluster import ActiveWorkerInfo, ScheduleStateInfo, WorkerStateInfo
from horsies.tui.lines import Line, ListRow, age, clock, columns, line, short
from horsies.tui.view_dashboard import NEVER

OLD_REPORT_S = 120.0  # workers report every 30 s unless told otherwise


@dataclass(frozen=True, slots=True)
class DeadWorker:
    """A worker that nobody hears of, and how many tasks it still holds. `row` is None if it is not registered."""

    worker_id: str
    held: int
    row: WorkerStateInfo | None


def dead_workers(workers: Sequence[WorkerStateInfo], held: Mapping[str, int]) -> list[DeadWorker]:
    """Registered workers that are not live, and owners of tasks that are not registered."""
    silent = [DeadWorker(one.worker_id, held.get(one.worker_id, 0), one) for one in workers if not one.is_live]
    known = {one.worker_id for one in workers}
    gone = [DeadWorker(worker_id, number, None) for worker_id, number in sorted(held.items()) if worker_id not in known]
    return [*silent, *gone]


def maintenance(
    workers: Sequence[WorkerStateInfo],
    held: Mapping[str, int],
    registry: Sequence[ActiveWorkerInfo],
    schedules: Sequence[ScheduleStateInfo],
    width: int,
    now: datetime,
) -> list[ListRow]:
    dead = dead_workers(workers, held)
    return [
        *_section("Dead workers", dead, _dead(now), "none", "dead", width),
        ListRow(()),
        *_section("Snapshots", workers, _snapshots(now), "no worker is registered", "snapshot", width),
        ListRow(()),
        *_section("Registry", registry, _registry(now), "no worker is registered", "registry", width),
        ListRow(()),
        *_section("Schedules", schedules, _schedules(now), "no schedule is known", "schedule", width),
    ]


def _section(
    title: str, items: Sequence[Any], wanted: Sequence[Column], nothing: str, kind: str, width: int
) -> Iterator[ListRow]:
    yield ListRow(line((f"{title}  ", "bold"), (f"{len(items):,}" if items else nothing, "dim")))
    if not items:
        return
    head, lines = columns(wanted, items, width)
    yield ListRow(head)
    for item, cells in zip(items, lines, strict=True):
        name = item.name if isinstance(item, ScheduleStateInfo) else item.worker_id
        yield ListRow(cells, f"{kind}:{name}", item)


def _dead(now: datetime) -> tuple[Column, ...]:
    return (
        Column("Worker", lambda one: one.worker_id, folds=True),
        Column("silent for", lambda one: "not registered" if one.row is None else short(one.row.silence_seconds)),
        Column("holds", lambda one: line((count(one.held, "task"), "bad")) if one.held else line(("nothing", "dim"))),
        Column("last heartbeat", lambda one: one.row and clock(one.row.last_heartbeat_at, now), leaves=1),
        Column("host", lambda one: one.row and one.row.hostname, leaves=2),
    )


def _snapshots(now: datetime) -> tuple[Column, ...]:
    return (
        Column("Worker", lambda one: one.worker_id, folds=True),
        Column("report", lambda one: report_age(one, now)),
        Column("heartbeat", lambda one: f"{short(one.silence_seconds)} ago"),
        Column("running", lambda one: one.tasks_running, leaves=2),
        Column("claimed", lambda one: one.tasks_claimed, leaves=3),
        Column("reported at", lambda one: clock(one.snapshot_at, now), leaves=1),
    )


def report_age(worker: WorkerStateInfo, now: datetime) -> Line:
    """How old the newest snapshot of a worker is."""
    if worker.snapshot_at is None:
        return line(("none yet", "dim"))
    seconds = (now - worker.snapshot_at).total_seconds()
    return line((f"{short(seconds)} ago", "warn" if seconds > OLD_REPORT_S else ""))


def _registry(now: datetime) -> tuple[Column, ...]:
    return (
        Column("Worker", lambda one: one.worker_id, folds=True),
        Column("state", lambda one: line(("stale", "bad")) if one.is_stale else line(("ok", "good"))),
        Column("last heartbeat", lambda one: clock(one.last_heartbeat_at, now)),
        Column("started", lambda one: clock(one.started_at, now), leaves=1),
        Column("uptime", lambda one: age(one.started_at, now), leaves=2),
        Column("host", lambda one: one.hostname, leaves=4),
        Column("pid", lambda one: None if one.pid is None else f"{one.pid}", leaves=3),
    )


def _schedules(now: datetime) -> tuple[Column, ...]:
    return (
        Column("Schedule", lambda one: one.name, folds=True),
        Column("state", schedule_state),
        Column("next run", lambda one: next_run(one, now)),
        Column("last run", lambda one: f"{age(one.last_run_at, now)} ago" if one.last_run_at else None, leaves=1),
        Column("runs", lambda one: one.run_count, leaves=2),
        Column("from", lambda one: one.source, leaves=3),
    )


def schedule_state(schedule: ScheduleStateInfo) -> Line:
    if schedule.paused:
        return line(("paused", "warn"))
    if not schedule.is_active:
        return line(("not active here", "dim"))
    return (
        line((f"{short(schedule.lag_seconds)} late", "bad")) if schedule.lag_seconds > 60 else line(("active", "good"))
    )


def next_run(schedule: ScheduleStateInfo, now: datetime) -> str:
    moment = schedule.next_run_at
    if moment is None or moment.year >= NEVER:
        return ""
    return f"in {age(now, moment)}" if moment > now else "now"
