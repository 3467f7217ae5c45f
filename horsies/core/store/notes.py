"""One typed function per statement about what tasks say while they run: their progress (P-50, D-22) and their logs
(P-51a, D-23). The worker writes many at once; its commits do not wait for the disk. In tables of an older version, no
task has any progress.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg.errors import UndefinedTable
from pydantic_core import to_json

from horsies.core.db import Connection
from horsies.core.models.notes import LogPlace, TaskLogLine, TaskProgress, lines_of, progress_of
from horsies.core.sql import load, texts

START = LogPlace()
LOGGED_ROWS = 200  # in one read of a log that is followed


class ProgressRow(NamedTuple):
    """How far one run has come."""

    task_id: str
    claim_seq: int
    attempt: int
    done: float
    total: float | None
    message: str | None


class LogRow(NamedTuple):
    """Lines that one run has logged, as JSON."""

    task_id: str
    claim_seq: int
    attempt: int
    first_line: int
    last_line: int
    lines: str


class LogTrim(NamedTuple):
    """What one run has logged between these lines is to be deleted."""

    task_id: str
    claim_seq: int
    after: int
    before: int


class Page(NamedTuple):
    """Lines of a log, and where to continue: after the last of them, or after any other, by its place."""

    lines: list[TaskLogLine]
    place: LogPlace
    is_last: bool  # there are no more at the moment
    places: Sequence[LogPlace] = ()


async def write(
    conn: Connection,
    worker_id: str,
    progress: Sequence[ProgressRow],
    logs: Sequence[LogRow],
    trims: Sequence[LogTrim],
) -> None:
    """Write what the runs of a worker have said. The caller provides the transaction."""
    await conn.execute(load("tasks/commit_soon"))
    if progress:
        await conn.execute(load("tasks/write_progress"), {"rows": _json(progress), "worker_id": worker_id})
    if logs:
        await conn.execute(load("tasks/write_logs"), {"rows": _json(logs)})
    if trims:
        await conn.execute(load("tasks/trim_logs"), {"rows": _json(trims)})


async def progress(conn: Connection, task_ids: Iterable[str]) -> Mapping[str, TaskProgress]:
    """How far these tasks have come; those that have never said so are missing."""
    try:
        rows = await (await conn.execute(load("tasks/progress"), {"ids": texts(task_ids)})).fetchall()
    except UndefinedTable:
        return {}
    return {
        task_id: progress_of(attempt, done, total, message, first_done, first_at, updated_at)
        for task_id, attempt, done, total, message, first_done, first_at, updated_at in rows
    }


async def logs(conn: Connection, task_id: str, after: LogPlace = START, most: int | None = None) -> Page:
    """What a task has logged since that place, at most so many rows of the table."""
    params = {"task_id": task_id, "claim_seq": after.claim_seq, "line": after.line, "most": most}
    rows = await (await conn.execute(load("tasks/logs"), params)).fetchall()
    found = list(lines_of(rows, after))
    places = [place for place, _ in found]
    is_last = most is None or len(rows) < most
    return Page([line for _, line in found], places[-1] if places else after, is_last, places)


async def prune_logs(conn: Connection, age: timedelta, most: int) -> int:
    """Delete lines that were logged longer ago."""
    cursor = await conn.execute(load("tasks/prune_logs"), {"age": age, "most": most}, prepare=False)
    return len(await cursor.fetchall())


def _json(rows: Sequence[Any]) -> str:
    return to_json([row._asdict() for row in rows]).decode()
