"""Tab 2: the workers and their history (M-80). A line for each worker, charts of the selected one over a window of
time, and everything that is known about one. Plain functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from horsies.cli.output import duration, some
from horsies.cli.tables import Column
from horsies.core.models.monitoring.cluster import WorkerHistoryPoint, WorkerStateInfo
from horsies.tui import charts
from horsies.tui.lines import Line, ListRow, age, block, columns, cut, line, named, short

# The windows of the charts, in the order of `[` and `]`.
WINDOWS = {
    "5m": timedelta(minutes=5),
    "30m": timedelta(minutes=30),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
}
FIRST_WINDOW = "30m"
LOWEST, HIGHEST = 1, 5  # rows of one chart
MOST_NAMES = 200


def workers(found: Sequence[WorkerStateInfo], width: int, now: datetime) -> tuple[Line, list[ListRow]]:
    """The titles, and a line for each worker."""
    head, lines = columns(_columns(now), found, width)
    return head, [ListRow(shown, one.worker_id, one) for one, shown in zip(found, lines, strict=True)]


def history(
    worker: WorkerStateInfo,
    points: Sequence[WorkerHistoryPoint] | None,
    window: str,
    now: datetime,
    width: int,
    height: int,
) -> list[Line]:
    """Charts of running tasks, processor and memory, in so many lines."""
    choice = "  ".join(f"[{name}]" if name == window else name for name in WINDOWS)
    title = cut(line((worker.worker_id, "head"), (f"  {choice}", "dim")), width)
    if points is None:
        return [title, line(("…", "dim"))]
    room = max(10, width - charts.LABEL)
    rows = min(HIGHEST, (height - 2) // 3)
    if rows < LOWEST:
        return [title]
    found = [title]
    for name, top, unit, values in (
        ("running", worker.processes or 1, "", [(point.snapshot_at, point.tasks_running) for point in points]),
        ("cpu", None, "%", [(point.snapshot_at, point.cpu_percent) for point in points]),
        ("memory", None, "M", [(point.snapshot_at, _memory(point)) for point in points]),
    ):
        laid_out = charts.over_time(values, now, WINDOWS[window], room)
        found += charts.chart(name, laid_out, height=rows, top=top, unit=unit)
    return [*found, charts.axis(window, room)]


def worker_detail(worker: WorkerStateInfo, width: int, now: datetime) -> list[ListRow]:
    """Everything that the worker has said."""
    pairs: list[tuple[str, Any]] = [
        ("worker", worker.worker_id),
        ("state", state(worker)),
        ("host", worker.hostname),
        ("pid", worker.pid),
        ("started", worker.started_at),
        ("uptime", duration((now - worker.started_at).total_seconds())),
        ("last heartbeat", f"{duration(worker.silence_seconds)} ago"),
        ("last report", worker.snapshot_at and f"{age(worker.snapshot_at, now)} ago"),
        ("slots", slots(worker)),
        ("running", worker.tasks_running),
        ("claimed", worker.tasks_claimed),
        ("most claimed", worker.max_claim_per_worker or "automatic"),
        ("prefetch", worker.prefetch_buffer),
        ("cap of all workers", worker.cluster_wide_cap),
        ("cpu of supervisor", percent(worker.cpu_percent)),
        ("memory of supervisor", megabytes(worker.memory_usage_mb)),
        ("memory of children", megabytes(worker.children_memory_mb)),
        ("queues", ", ".join(_queue(worker, name) for name in worker.queues)),
    ]
    lines = named(pairs, width)
    if worker.task_names is not None:
        names = sorted(worker.task_names)
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        lines += [(), *block(f"{len(names)} task names", ", ".join(names[:MOST_NAMES]) + more, width)]
    return list(map(ListRow, lines))


def _queue(worker: WorkerStateInfo, name: str) -> str:
    said = []
    if (priority := worker.queue_priorities.get(name)) is not None:
        said.append(f"priority {priority}")
    if (limit := worker.queue_max_concurrency.get(name)) is not None:
        said.append(f"limit {limit}")
    return f"{name} ({some(said)})" if said else name


def state(worker: WorkerStateInfo) -> Line:
    return line(("live", "good")) if worker.is_live else line(("silent", "bad"))


def slots(worker: WorkerStateInfo) -> str:
    """`4`, or `4×100` if each process runs so many async tasks at a time."""
    if worker.processes is None:
        return ""
    together = worker.concurrency or 1
    return f"{worker.processes}×{together}" if together > 1 else f"{worker.processes}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}%"


def megabytes(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f} MB"


def memory(worker: WorkerStateInfo) -> str:
    """Of the supervisor and its children."""
    if worker.memory_usage_mb is None:
        return ""
    return megabytes(worker.memory_usage_mb + (worker.children_memory_mb or 0.0))


def _memory(point: WorkerHistoryPoint) -> float | None:
    return None if point.memory_usage_mb is None else point.memory_usage_mb + (point.children_memory_mb or 0.0)


def _columns(now: datetime) -> tuple[Column, ...]:
    return (
        Column("Host", lambda one: one.hostname or one.worker_id, folds=True),
        Column("pid", lambda one: None if one.pid is None else f"{one.pid}"),
        Column("state", state),
        Column("slots", slots, leaves=4),
        Column("running", lambda one: one.tasks_running),
        Column("claimed", lambda one: one.tasks_claimed, leaves=5),
        Column("cpu", lambda one: percent(one.cpu_percent), leaves=2),
        Column("memory", memory, leaves=3),
        Column("uptime", lambda one: age(one.started_at, now), leaves=1),
        Column("silent", lambda one: short(one.silence_seconds), leaves=6),
        Column("queues", lambda one: ", ".join(one.queues), leaves=7, folds=True),
        Column("worker", lambda one: one.worker_id, leaves=8),
    )
