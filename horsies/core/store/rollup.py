"""One typed function per statement about the statistics by minute (D-59): workers add to them, one of them notes what
waits and runs, and dashboards read. None is prepared: they are rare. Nothing depends on what is stored here.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, Protocol

from pydantic_core import to_json

from horsies.core.db import AWAY, Connection
from horsies.core.models.tasks import OutcomeCode
from horsies.core.sql import load
from horsies.core.tasks.tally import EndKind, OutcomeGroup, OutcomeTally

SPANS = [60, 600, 3600]  # seconds: everything is added up for each of them, so that a long chart reads few rows
MOST_QUEUES = 500
MOST_TASKS = 50_000  # that a look at what waits counts in all; the same of what is in flight
ALL_QUEUES = "*"


async def add(conn: Connection, groups: Iterable[OutcomeGroup], age_s: float) -> None:
    """Add these counts, of which half are older than `age_s`. The commit does not wait for the disk."""
    rows = to_json([group.row() for group in groups]).decode()
    params = {"groups": rows, "age": age_s, "spans": SPANS}
    await conn.execute(load("rollup/add"), params, prepare=False)


class Named(Protocol):
    """What is counted of a task."""

    @property
    def queue_name(self) -> str: ...
    @property
    def task_name(self) -> str: ...


async def count_cancelled(conn: Connection, cancelled: Iterable[Named]) -> None:
    """Count tasks that were cancelled, outside of the transaction that did it. The cancellation stands whether or not
    this succeeds: the role of the caller may have no right to it."""
    tally = OutcomeTally()
    for task in cancelled:
        tally.group(task.queue_name, task.task_name, OutcomeCode.TASK_CANCELLED.value).ended(EndKind.CANCELLED)
    if tally:
        with suppress(*AWAY):
            await add(conn, tally.take(), 0.0)


async def note_gauges(conn: Connection, *, most: int = MOST_TASKS, queues: int = MOST_QUEUES) -> float:
    """Note what waits and runs, unless somebody has in this minute; return how many seconds of it are left."""
    params = {"most": most, "queues": queues, "spans": SPANS}
    [(left_s, _)] = await (await conn.execute(load("rollup/gauges"), params, prepare=False)).fetchall()
    return float(left_s)


class RollupWindow(NamedTuple):
    """The rows of one span from `since` until `until`, as points of `step`; all in seconds."""

    span: int
    since: float
    until: float
    step: float
    most: int  # rows that are looked at, the newest

    @property
    def params(self) -> dict[str, float]:
        return {
            "span": self.span,
            "first_s": self.since,
            "last_s": self.until,
            "step_s": self.step,
            "most": self.most,
        }


class RollupRow(NamedTuple):
    """One point in which there was anything. A histogram has all buckets, None for those after the last."""

    point: int
    completed: int | None
    failed: int | None
    retried: int | None
    expired: int | None
    cancelled: int | None
    wait_counts: list[int | None] | None
    run_counts: list[int | None] | None
    waiting: int | None  # None: nobody looked
    oldest_due_seconds: float | None
    running: int | None
    cut_at: datetime | None  # there may be more rows before this


class FailureRow(NamedTuple):
    """One task name and error code; the trend is points and numbers."""

    task_name: str
    error_code: str
    failed: int
    first_at: datetime
    last_at: datetime
    points: list[int]
    numbers: list[int]
    example_id: str | None
    example_ended_at: datetime | None
    cut_at: datetime | None  # there may be more rows before this


async def read(
    conn: Connection, window: RollupWindow, queues: list[str] | None, task_names: list[str] | None
) -> list[RollupRow]:
    """What was counted in each point, of these queues and names."""
    params = {**window.params, "queues": queues, "task_names": task_names}
    rows = await (await conn.execute(load("rollup/read"), params, prepare=False)).fetchall()
    return [RollupRow(*row) for row in rows]


async def failures(conn: Connection, window: RollupWindow, *, limit: int) -> list[FailureRow]:
    """Which tasks failed with which codes, the most frequent first."""
    params = {**window.params, "limit": limit}
    rows = await (await conn.execute(load("rollup/failures"), params, prepare=False)).fetchall()
    return [FailureRow(*row) for row in rows]


class FailedTasks(NamedTuple):
    """Tasks of one name and code that failed of late. `is_cut`: there may be more, also of other groups."""

    number: int
    first_at: datetime
    last_at: datetime
    ids: list[str]
    is_cut: bool


async def failed_tasks(
    conn: Connection, window: RollupWindow, *, most: int, ids: int
) -> dict[tuple[str, str], FailedTasks]:
    """The tasks behind the failures of a window, by name and code, as far as they are among the newest that ended."""
    params = {"first_s": window.since, "most": most, "ids": ids}
    rows = await (await conn.execute(load("rollup/failed_tasks"), params, prepare=False)).fetchall()
    return {(name, code): FailedTasks(*rest) for name, code, *rest in rows}
