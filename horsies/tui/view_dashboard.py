"""Tab 1: the whole at a glance (M-80). Workers and what they can do, states of tasks, workflows, what is wrong, the
last hour, and each queue. Plain functions of a snapshot; `--once` prints the same lines (M-82).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horsies.cli.output import count, duration
from horsies.cli.tables import Column
from horsies.core.models.monitoring.cluster import Alert, QueueInfo, Snapshot, WorkerHistoryPoint
from horsies.core.monitoring.alerts import Capacity, capacity
from horsies.core.text import visible
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus
from horsies.tui import charts
from horsies.tui.lines import Line, ListRow, beside, broken, columns, line, named, number, short, status, width_of

TREND = timedelta(hours=1)
WIDE = 76  # cells; from here on two blocks are next to each other
LONGEST_BAR = 30
TREND_HEIGHT = 5
NEVER = 9000  # the year of a next run that stands for "never"
BAR = 20
MOST_LINES = 3  # of one alert, beside its first
MOST_ALERTS = 50


@dataclass(frozen=True, slots=True)
class Trend:
    """What workers have reported within the last hour; `left_out` is how many of them were not asked."""

    histories: Mapping[str, Sequence[WorkerHistoryPoint]]
    left_out: int = 0


def dashboard(
    snapshot: Snapshot, alerts: Sequence[Alert], trend: Trend | None, width: int, now: datetime
) -> list[ListRow]:
    """The lines of the tab; alerts and queues can be selected."""
    return [
        *map(ListRow, facts(snapshot, width, now)),
        ListRow(()),
        *_alerts(alerts, width),
        ListRow(()),
        *map(ListRow, _states_and_trend(snapshot, trend, width, now)),
        ListRow(()),
        *_queues(snapshot, width),
    ]


def facts(snapshot: Snapshot, width: int, now: datetime) -> list[Line]:
    """A line for each thing that there is one number of."""
    found = capacity(snapshot.workers)
    server = snapshot.database
    pairs: list[tuple[str, Any]] = [
        ("Workers", _unless_missing(snapshot, "workers", _workers(found))),
        ("Capacity", _unless_missing(snapshot, "workers", _capacity(found, width))),
        ("Throughput", _unless_missing(snapshot, "ended", line(_throughput(snapshot)))),
        ("Workflows", _unless_missing(snapshot, "workflows", _workflows(snapshot.workflow_counts))),
        ("Schedules", _unless_missing(snapshot, "schedules", _schedules(snapshot, now))),
        ("Server", line(f"PostgreSQL {server.server_version}, schema {server.schema_version}, {_sessions(snapshot)}")),
    ]
    return named(pairs, width)


def _unless_missing(snapshot: Snapshot, part: str, shown: Line) -> Line:
    return line(("not read", "warn")) if part in snapshot.missing else shown


def _workers(found: Capacity) -> Line:
    live = (f"{found.live} live", "good" if found.live else "bad")
    silent = [(f", {found.silent} silent", "warn")] if found.silent else []
    return line(live, *silent, f", running {found.running:,}, claimed {found.claimed:,}")  # type: ignore[arg-type]


def _capacity(found: Capacity, width: int) -> Line:
    used = found.utilization
    if used is None:
        return line(("no worker has reported yet" if found.live else "none", "dim"))
    text = f"{found.busy} of {found.processes} process{'' if found.processes == 1 else 'es'} busy"
    shown = charts.bar(used, min(BAR, max(4, width - 50)))
    return line(f"{used:.0%} utilization  ", (shown, "warn" if used >= 0.9 else "busy"), f"  {text}")


def _throughput(snapshot: Snapshot) -> str:
    minute = sum(queue.ended_last_minute for queue in snapshot.queues)
    return f"{minute:,} tasks ended in the last minute"


def _workflows(counts: Mapping[str, int]) -> Line:
    if not any(counts.values()):
        return line(("none open", "dim"))
    return line(", ".join(f"{number:,} {name.lower()}" for name, number in sorted(counts.items()) if number))


def _schedules(snapshot: Snapshot, now: datetime) -> Line:
    active = [one for one in snapshot.schedules if one.is_active and not one.paused]
    if not snapshot.schedules:
        return line(("none", "dim"))
    paused = sum(one.paused for one in snapshot.schedules)
    others = len(snapshot.schedules) - len(active) - paused
    text = ", ".join(
        f"{number} {word}"
        for number, word in ((len(active), "active"), (paused, "paused"), (others, "not known to be active"))
        if number
    )
    following = [
        (one.next_run_at, one.name) for one in active if one.next_run_at is not None and one.next_run_at.year < NEVER
    ]
    if following:
        moment, name = min(following)
        text += f", next {name} in {short((moment - now).total_seconds())}"
    return line(text)


def _sessions(snapshot: Snapshot) -> str:
    server = snapshot.database
    listeners = "" if server.listeners is None else f", {count(server.listeners, 'listener')}"
    return f"{count(server.sessions, 'session')}{listeners}"


def _alerts(alerts: Sequence[Alert], width: int) -> Iterator[ListRow]:
    if not alerts:
        yield ListRow(line(("Alerts  ", "head"), ("none", "good")))
        return
    yield ListRow(line((f"Alerts  {len(alerts)}", "head")))
    for alert in alerts[:MOST_ALERTS]:
        mark = "!! " if alert.level == "bad" else "!  "
        first, *more = broken(visible(alert.message), width - len(mark))
        yield ListRow(line((mark, alert.level), first), f"alert:{alert.kind}:{alert.subject}", alert)
        yield from (ListRow(line(" " * len(mark), part)) for part in more[:MOST_LINES])


def _states_and_trend(snapshot: Snapshot, trend: Trend | None, width: int, now: datetime) -> list[Line]:
    is_wide = width >= WIDE
    states = distribution(snapshot, width // 2 - 2 if is_wide else width)
    room = width - max(map(width_of, states)) - 3 if is_wide else width
    chart = last_hour(trend, snapshot.taken_at, room)
    return beside(states, chart, width) if is_wide else [*states, (), *chart]


def distribution(snapshot: Snapshot, width: int) -> list[Line]:
    """How many tasks are in each state, and a bar for each. Ended ones are those of the last hour."""
    counts: Counter[TaskStatus] = Counter()
    guessed = set()
    for one in snapshot.task_counts:
        counts[one.status] += one.count
        if not one.is_exact:
            guessed.add(one.status)
    most = max(counts.values(), default=0)
    within = duration(snapshot.ended_window_seconds)
    texts = {state: number(counts[state], state not in guessed) for state in TaskStatus}
    digits = max(map(len, texts.values()))
    room = max(4, min(LONGEST_BAR, width - 13 - digits))
    found = [line(("Tasks", "head"), (f"  (ended: last {within})", "dim"))]
    for state in TaskStatus:
        [word] = status(state)
        is_missing = _part_of(state) in snapshot.missing
        text = "?" if is_missing else texts[state]
        shown = "" if is_missing else charts.share(counts[state], most, room)
        found.append(line(f"{word.text:<10} {text:>{digits}}  ", (shown, word.tone)))
    return found


def _part_of(state: TaskStatus) -> str:
    if state in TASK_TERMINAL_STATES:
        return "ended"
    return "waiting" if state is TaskStatus.PENDING else "in_flight"


def last_hour(trend: Trend | None, end: datetime, width: int) -> list[Line]:
    """How many tasks workers ran within the last hour, together."""
    title = "Running tasks, last hour"
    if trend is None:
        return [line((title, "head")), line(("…", "dim"))]
    values = together(trend, end, TREND, max(10, width - charts.LABEL))
    if all(value is None for value in values):
        return [line((title, "head")), line(("no live worker has reported", "dim"))]
    remark = f" (without {count(trend.left_out, 'worker')})" if trend.left_out else ""
    shown = charts.chart("", values, height=TREND_HEIGHT)
    return [line((title, "head"), (remark, "dim")), *shown, charts.axis("1h", max(10, width - charts.LABEL))]


def together(trend: Trend, end: datetime, window: timedelta, width: int) -> list[float | None]:
    """The sum over all workers; unknown where none of them has reported."""
    each = [
        charts.over_time([(point.snapshot_at, point.tasks_running) for point in points], end, window, width)
        for points in trend.histories.values()
    ]
    found: list[float | None] = []
    for column in zip(*each, strict=True):
        known = [value for value in column if value is not None]
        found.append(sum(known) if known else None)
    return found or [None] * width


def _queues(snapshot: Snapshot, width: int) -> Iterator[ListRow]:
    if not snapshot.queues:
        yield ListRow(line(("Queues  ", "head"), ("none", "dim")))
        return
    head, lines = columns(_QUEUES, snapshot.queues, width)
    yield ListRow(head)
    for queue, shown in zip(snapshot.queues, lines, strict=True):
        yield ListRow(shown, f"queue:{queue.name}", queue)


def _serving(queue: QueueInfo) -> Line:
    return line(("none", "bad")) if queue.waiting and not queue.live_workers else line(f"{queue.live_workers:,}")


_QUEUES = (
    Column("Queue", lambda queue: queue.name, folds=True),
    Column("waiting", lambda queue: number(queue.waiting, queue.is_exact)),
    Column("due", lambda queue: number(queue.due, queue.is_exact), leaves=3),
    Column("later", lambda queue: number(queue.scheduled, queue.is_exact), leaves=4),
    Column("claimed", lambda queue: queue.claimed, leaves=2),
    Column("running", lambda queue: queue.running),
    Column("limit", lambda queue: queue.max_concurrency, leaves=5),
    Column("oldest due", lambda queue: short(queue.oldest_due_seconds)),
    Column("ended/min", lambda queue: queue.ended_last_minute, leaves=1),
    Column("workers", _serving),
)
