"""The arithmetic of a large installation, from what one worker was measured to need. Pure.

A worker is one supervisor with its child processes; everything that it asks of the server it asks once, whatever the
number of its children. Only heartbeats are counted by running tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

HEARTBEAT_S = 30.0
SNAPSHOT_S = 30.0
WEEK_S = 7 * 86_400
SENDS_PER_S = 1_000


@dataclass(frozen=True)
class PerWorker:
    """What one idle worker needs, and what a send to an idle fleet causes; None if it was not measured."""

    connections: float | None
    statements_per_s: float | None
    core_percent: float | None  # its processes and its part of PostgreSQL
    claims_alone: float | None  # for each send, one idle worker
    claims_of_fleet: float | None  # for each send, `fleet` idle workers
    fleet: int
    notifications: float | None  # for each task of a large `send_many`
    snapshot_bytes: float | None
    snapshot_bytes_many_queues: float | None


# Measured by this program on the release before the work on scale began, with 16 workers, 1,000 queues, on two cores.
BEFORE = PerWorker(
    connections=4.06,
    statements_per_s=3.74,
    core_percent=0.85,
    claims_alone=2.02,
    claims_of_fleet=18.0,
    fleet=16,
    notifications=2.0,
    snapshot_bytes=1_128,
    snapshot_bytes_many_queues=11_696,
)


@dataclass(frozen=True)
class Installation:
    """So many hosts, with so many workers and processes on each."""

    hosts: int
    workers_per_host: int
    processes_per_worker: int

    @property
    def workers(self) -> int:
        return self.hosts * self.workers_per_host

    @property
    def children(self) -> int:
        return self.workers * self.processes_per_worker


USUAL = Installation(hosts=100, workers_per_host=1, processes_per_worker=32)
SPLIT = Installation(hosts=100, workers_per_host=32, processes_per_worker=1)


@dataclass(frozen=True)
class Load:
    """What an installation asks of its server; None where the figure of a worker is missing."""

    connections: float | None
    idle_statements_per_s: float | None
    idle_cores: float | None
    claims_per_send: float | None
    claims_per_s: float | None  # at SENDS_PER_S, sent one by one to an idle installation
    notifications_per_s: float | None  # at SENDS_PER_S, sent in large batches
    heartbeat_rows_per_s: float  # all children are busy with long tasks
    snapshot_mb_a_week: float | None
    snapshot_mb_a_week_many_queues: float | None


def load_of(place: Installation, each: PerWorker) -> Load:
    claims = claims_per_send(place.workers, each)
    weekly = place.workers * WEEK_S / SNAPSHOT_S / 1e6
    return Load(
        connections=_times(each.connections, place.workers),
        idle_statements_per_s=_times(each.statements_per_s, place.workers),
        idle_cores=_times(each.core_percent, place.workers / 100),
        claims_per_send=claims,
        claims_per_s=_times(claims, SENDS_PER_S),
        notifications_per_s=_times(each.notifications, SENDS_PER_S),
        heartbeat_rows_per_s=place.children / HEARTBEAT_S,
        snapshot_mb_a_week=_times(each.snapshot_bytes, weekly),
        snapshot_mb_a_week_many_queues=_times(each.snapshot_bytes_many_queues, weekly),
    )


def claims_per_send(workers: int, each: PerWorker) -> float | None:
    """On the line through one worker and the fleet that was measured; never less than one."""
    if each.claims_alone is None or each.claims_of_fleet is None or each.fleet < 2:
        return None
    slope = (each.claims_of_fleet - each.claims_alone) / (each.fleet - 1)
    return max(1.0, each.claims_alone + slope * (workers - 1))


def _times(figure: float | None, count: float) -> float | None:
    return None if figure is None else figure * count


def measured(value_of: Callable[[str], float | None], workers: int) -> PerWorker:
    """From the figures of a report, by their keys."""
    core, alone, times = (value_of(key) for key in ("idle_cpu", "fleet_claims_1", f"fleet_claims_{workers}"))
    return PerWorker(
        connections=value_of("idle_connections"),
        statements_per_s=value_of("idle_statements"),
        core_percent=None if core is None else core / workers,
        claims_alone=alone,
        claims_of_fleet=None if alone is None or times is None else alone * times,
        fleet=workers,
        notifications=value_of("fleet_notifications"),
        snapshot_bytes=value_of("snapshot_bytes_1"),
        snapshot_bytes_many_queues=value_of("snapshot_bytes_many"),
    )


WORDS: Mapping[str, str] = {
    "connections": "connections",
    "idle_statements_per_s": "statements a second, all idle",
    "idle_cores": "cores that idle workers and the server use",
    "claims_per_send": "claims for each send, all idle",
    "claims_per_s": f"claims a second at {SENDS_PER_S:,} single sends a second, all idle",
    "notifications_per_s": f"notifications a second at {SENDS_PER_S:,} tasks a second, sent in batches",
    "heartbeat_rows_per_s": "rows of heartbeats a second, all children busy with long tasks",
    "snapshot_mb_a_week": "MB of snapshots a week, one queue",
    "snapshot_mb_a_week_many_queues": "MB of snapshots a week, 1,000 queues",
}


def table(after: PerWorker, before: PerWorker = BEFORE) -> str:
    """For the page: both installations, before and after."""
    places = (USUAL, SPLIT)
    loads = [load_of(place, each) for place in places for each in (before, after)]
    titles = [f"{place.workers:,} workers × {place.processes_per_worker}, {when}" for place in places
              for when in ("before", "after")]  # fmt: skip
    lines = [_line(["", *titles]), "|" + "---|" * (len(titles) + 1)]
    for one in fields(Load):
        lines.append(_line([WORDS[one.name], *(shown(getattr(load, one.name)) for load in loads)]))
    return "\n".join(lines)


def shown(value: float | None) -> str:
    """As many digits as an estimate deserves."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
