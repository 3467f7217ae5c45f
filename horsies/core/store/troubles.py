"""One typed function per statement about what may be wrong beyond a snapshot: what workers hold and for how long, tasks
and workflows that ended badly or stand still. All of them only read, and each looks at a bounded number of rows.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from horsies.core.db import Connection
from horsies.core.sql import load, texts
from horsies.core.tasks.tally import BUCKETS
from horsies.core.types import WorkflowStatus


class HeldTasks(NamedTuple):
    """Tasks of one name that a worker holds: how many, and the one whose code has been running for longest."""

    worker_id: str
    task_name: str
    number: int
    oldest_id: str | None
    seconds: float | None


class BadEnds(NamedTuple):
    """How many tasks ended badly of late; `lost` are among those that failed."""

    failed: int = 0
    expired: int = 0
    lost: int = 0


class StoppedWorkflows(NamedTuple):
    """How many workflows failed, or were paused by an error, and the last of them."""

    number: int
    workflow_id: str
    name: str
    error_code: str | None


async def held_tasks(conn: Connection, *, most: int) -> list[HeldTasks]:
    rows = await (await conn.execute(load("monitoring/held_tasks"), {"most": most}, prepare=False)).fetchall()
    return [HeldTasks(*row) for row in rows]


async def stopped_workflows(
    conn: Connection, window: timedelta, *, most: int
) -> dict[WorkflowStatus, StoppedWorkflows]:
    """Those that an error has paused, whenever it did, and those that failed within that time."""
    wanted = {"window": window, "most": most}
    rows = await (await conn.execute(load("monitoring/stopped_workflows"), wanted, prepare=False)).fetchall()
    return {WorkflowStatus(status): StoppedWorkflows(*rest) for status, *rest in rows}


async def bad_ends(conn: Connection, window: timedelta, *, lost: Sequence[str], most: int) -> BadEnds:
    """What the statistics have counted within that time; tasks that failed with one of these codes are lost."""
    wanted = {"window": window, "lost": texts(lost), "most": most}
    [row] = await (await conn.execute(load("rollup/bad_ends"), wanted, prepare=False)).fetchall()
    return BadEnds(*row)


async def run_times(
    conn: Connection, window: timedelta, task_names: Sequence[str], *, most: int
) -> dict[str, list[int]]:
    """For each of these names that has ended within that time, the histogram of its run times."""
    wanted = {"window": window, "task_names": texts(task_names), "most": most}
    found: dict[str, list[int]] = {}
    for name, bucket, number in await (await conn.execute(load("rollup/run_times"), wanted, prepare=False)).fetchall():
        if bucket <= BUCKETS:
            found.setdefault(name, [0] * BUCKETS)[bucket - 1] = number
    return found
