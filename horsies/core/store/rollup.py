"""One typed function per statement about the statistics by minute (D-59): workers add to them, one of them notes what
waits and runs, and dashboards read. None is prepared: they are rare. Nothing depends on what is stored here.
"""

from collections.abc import Iterable

from pydantic_core import to_json

from horsies.core.db import Connection
from horsies.core.sql import load
from horsies.core.tasks.tally import OutcomeGroup

SPANS = [60, 600, 3600]  # seconds: everything is added up for each of them, so that a long chart reads few rows
MOST_QUEUES = 500
MOST_TASKS = 50_000  # that a look at what waits counts in all; the same of what is in flight
ALL_QUEUES = "*"


async def add(conn: Connection, groups: Iterable[OutcomeGroup], age_s: float) -> None:
    """Add these counts, of which half are older than `age_s`. The commit does not wait for the disk."""
    rows = to_json([group.row() for group in groups]).decode()
    params = {"groups": rows, "age": age_s, "spans": SPANS}
    await conn.execute(load("rollup/add"), params, prepare=False)


async def note_gauges(conn: Connection, *, most: int = MOST_TASKS, queues: int = MOST_QUEUES) -> float:
    """Note what waits and runs, unless somebody has in this minute; return how many seconds of it are left."""
    params = {"most": most, "queues": queues, "spans": SPANS}
    [(left_s, _)] = await (await conn.execute(load("rollup/gauges"), params, prepare=False)).fetchall()
    return float(left_s)
