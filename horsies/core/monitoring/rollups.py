"""Charts and failures (M-45b, M-45c), from the statistics by minute (D-59). A query reads a bounded number of rows,
whatever the time it is about: for long steps there are rows of ten minutes and of hours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING

from horsies.core.db import Connection
from horsies.core.models.monitoring import history, tasks
from horsies.core.monitoring import filters
from horsies.core.monitoring.queries import ask
from horsies.core.store import many, monitoring, rollup
from horsies.core.store.rollup import SPANS, RollupRow, RollupWindow
from horsies.core.tasks.tally import OUTCOME_NAMES, quantile

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

MOST_POINTS = 400
MOST_ROWS = 100_000
MOST_TASKS = 10_000  # that ended last, among which those that failed are found
MOST_LOOKED_UP = 200  # of these, for whether they were sent again,
MOST_EACH = 50  # and of one group
TREND = 24  # points
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
SHORT, LONG = timedelta(hours=6), timedelta(days=8)  # up to here, a trend is made of rows of a minute, or of ten


async def read_rollup(
    broker: PostgresBroker,
    *,
    since: datetime,
    until: datetime | None = None,
    step: timedelta = MINUTE,
    queues: Sequence[str] = (),
    task_names: Sequence[str] = (),
) -> tasks.MonitoringResult[history.RollupSeries]:
    """What became of tasks, how long they waited and ran, and what was waiting, in steps of whole minutes; of these
    queues and names, or of all. What waits and runs is known of queues, not of names."""

    async def read(conn: Connection) -> history.RollupSeries:
        wanted = filters.names("queues", queues), filters.names("task_names", task_names)
        window = _window(since, until or await _now(conn), step)
        rows = await rollup.read(conn, window, *wanted)
        return _series(window, rows)

    return await ask(broker, read)


async def list_failures(
    broker: PostgresBroker, *, since: datetime | None = None, limit: int = filters.DEFAULT_LIMIT
) -> tasks.MonitoringResult[history.FailureReport]:
    """Which tasks have failed with which codes since then (a day ago), the most frequent first."""

    async def read(conn: Connection) -> history.FailureReport:
        most, now = filters.checked_limit(limit), await _now(conn)
        window = trend_window(checked_time("since", since or now - DAY), now)
        rows = await rollup.failures(conn, window, limit=most)
        share = max(1, min(MOST_EACH, MOST_LOOKED_UP // max(1, len(rows))))
        found = await rollup.failed_tasks(conn, window, most=MOST_TASKS, ids=share)
        groups = {(row.task_name, row.error_code) for row in rows}
        ids = [task_id for group, some in found.items() if group in groups for task_id in some.ids][:MOST_LOOKED_UP]
        again = await many.sent_again(conn, ids) if ids else set[str]()
        return _report(window, rows, found, again)

    return await ask(broker, read)


def checked_time(what: str, value: datetime) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise filters.BadQuestion(f"{what} must be a datetime with a time zone, not {value!r}")
    return value


def span_of(step_s: int) -> int:
    """The longest span of which a step is made."""
    return max(span for span in SPANS if step_s % span == 0)


def _window(since: datetime, until: datetime, step: timedelta) -> RollupWindow:
    start, end = checked_time("since", since), checked_time("until", until)
    if not isinstance(step, timedelta) or step < MINUTE or step % MINUTE:
        raise filters.BadQuestion(f"step must be a timedelta of whole minutes, not {step!r}")
    step_s = int(step.total_seconds())
    first, last = start.timestamp() // step_s * step_s, end.timestamp()
    if last <= first:
        raise filters.BadQuestion("until must be later than since")
    if (points := ceil((last - first) / step_s)) > MOST_POINTS:
        raise filters.BadQuestion(
            f"that would be {points:,} points: at most {MOST_POINTS} are possible, with a longer step"
        )
    return _checked(RollupWindow(span_of(step_s), first, first + points * step_s, step_s, MOST_ROWS))


def trend_window(since: datetime, until: datetime) -> RollupWindow:
    """The rows for a trend of at most so many points."""
    length = until - since
    if length <= timedelta(0):
        raise filters.BadQuestion("since must be in the past")
    span = SPANS[0] if length <= SHORT else SPANS[1] if length <= LONG else SPANS[2]
    first = since.timestamp() // span * span
    step_s = max(span, ceil((until.timestamp() - first) / TREND / span) * span)
    return _checked(RollupWindow(span, first, until.timestamp(), step_s, MOST_ROWS))


def _checked(window: RollupWindow) -> RollupWindow:
    """Whole steps begin before the time that was asked for and end after it, and offsets move it too."""
    try:
        _time(window.since), _time(window.until)
    except (ValueError, OverflowError, OSError):
        raise filters.BadQuestion("since and until must be within the years 1 to 9999, in UTC") from None
    return window


def _series(window: RollupWindow, rows: Sequence[RollupRow]) -> history.RollupSeries:
    cut_at = next((row.cut_at for row in rows), None)
    begin = 0 if cut_at is None else int((cut_at.timestamp() - window.since) // window.step) + 1
    known = {row.point: row for row in rows}
    count = round((window.until - window.since) / window.step)
    points = tuple(_point(window, place, known.get(place)) for place in range(begin, count))
    since = _time(window.since + begin * window.step)
    return history.RollupSeries(since, _time(window.until), window.step, points, is_complete=cut_at is None)


def _point(window: RollupWindow, place: int, row: RollupRow | None) -> history.RollupPoint:
    at = _time(window.since + place * window.step)
    if row is None:
        return history.RollupPoint(at)
    waits, runs = _histogram(row.wait_counts), _histogram(row.run_counts)
    return history.RollupPoint(
        at,
        **{name: getattr(row, name) or 0 for name in OUTCOME_NAMES},
        wait_p50=quantile(waits, 0.5),
        wait_p95=quantile(waits, 0.95),
        run_p50=quantile(runs, 0.5),
        run_p95=quantile(runs, 0.95),
        waiting=row.waiting,
        oldest_due_seconds=row.oldest_due_seconds,
        running=row.running,
    )


def _histogram(counts: Sequence[int | None] | None) -> list[int]:
    return [count or 0 for count in counts or ()]


def _report(
    window: RollupWindow,
    rows: Sequence[rollup.FailureRow],
    found: Mapping[tuple[str, str], rollup.FailedTasks],
    again: Collection[str],
) -> history.FailureReport:
    cut_at = next((row.cut_at for row in rows), None)
    since = _time(window.since) if cut_at is None else cut_at
    count = ceil((window.until - window.since) / window.step)
    groups = tuple(_group(row, count, found.get((row.task_name, row.error_code)), again) for row in rows)
    return history.FailureReport(since, _time(window.until), window.step, groups, is_complete=cut_at is None)


def _group(
    row: rollup.FailureRow, count: int, found: rollup.FailedTasks | None, again: Collection[str]
) -> history.FailureGroup:
    """The statistics say how many; the tasks, as far as they are known, say when, and which."""
    trend = [0] * count
    for point, number in zip(row.points, row.numbers, strict=True):
        trend[min(point, count - 1)] += number
    last = row.example_ended_at if found is None else found.last_at
    is_whole = found is not None and not found.is_cut and found.number >= row.failed
    ids = [] if found is None else found.ids
    left = [task_id for task_id in ids if task_id not in again]
    category = tasks.category_of(row.error_code) if row.error_code else None
    return history.FailureGroup(
        row.task_name,
        row.error_code,
        category,
        row.failed,
        found.first_at if found is not None and is_whole else row.first_at,
        row.last_at if last is None else last,
        tuple(trend),
        next(iter([*left, *ids]), row.example_id),
        first_is_exact=is_whole,
        last_is_exact=last is not None,
        rerun=len(ids) - len(left),
    )


async def _now(conn: Connection) -> datetime:
    return await monitoring.now(conn)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
