"""One typed function per statement about what senders in other languages need to know (X-40): what a task is sent with
unless the sender says otherwise (D-59b), and the tasks that were sent before that was known (D-59c).
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

from pydantic_core import to_json

from horsies.core.db import Connection
from horsies.core.models.tasks import TaskOptions
from horsies.core.sql import load, texts
from horsies.core.tasks.catalogue import Catalogue

MOST = 500  # early tasks that one statement adopts
EARLY = "(early)"  # where they wait; no queue can have this name


class Adopted(NamedTuple):
    """How many early rows are gone, and how many tasks can run now; the others had ended before."""

    found: int
    adopted: int


async def publish(conn: Connection, catalogue: Catalogue) -> int:
    """Write what is new about these tasks; return of how many."""
    rows = [
        {**asdict(task), "max_retries": TaskOptions.from_json(task.task_options).max_retries}
        for task in catalogue.tasks
    ]
    params = {"rows": to_json(rows).decode(), "queues": to_json(catalogue.queues).decode()}
    cursor = await conn.execute(load("workers/publish"), params, prepare=False)
    return cursor.rowcount


async def adopt(conn: Connection, names: Iterable[str], most: int = MOST) -> Adopted:
    """Give early tasks of these names what has been published about them; at most so many."""
    params: dict[str, Any] = {"names": texts(sorted(names)), "most": most}
    cursor = await conn.execute(load("tasks/adopt"), params, prepare=False)
    row = await cursor.fetchone()
    assert row is not None
    return Adopted(*row)
