"""Reads waiting tasks, for checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horsies.core.sql import load
from horsies.core.store.arrays import texts
from horsies.core.store.tasks import Connection


class Waiting(NamedTuple):
    """Tasks of one name that wait in one queue, as far as they were read; `ids` are the first of them."""

    queue_name: str
    task_name: str
    tasks: int
    ids: list[str]


async def waiting(conn: Connection, queues: Sequence[str], *, most: int, sample: int) -> list[Waiting]:
    """The first `most` of each queue, by name, with the ids of at most `sample` of each name."""
    params = {"queues": texts(queues), "most": most, "sample": sample}
    cursor = await conn.execute(load("checks/waiting"), params)
    return [Waiting(*row) for row in await cursor.fetchall()]
