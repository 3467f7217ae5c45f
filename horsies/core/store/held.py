"""The waiting tasks of paused workflows, which are held out of the line of the claims (F-50, F-52): one typed function
per statement.

`hold` and `release` go through the tasks of locked workflows in parts: each gets the place at which the last part has
ended, so that none of them walks past what is done.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from horsies.core.db import Connection
from horsies.core.sql import load, texts
from horsies.core.store.workflows import Key

HeldTask: TypeAlias = tuple[str, str]  # workflow id and task id

FIRST_NODE: Key = ("", -1)  # where a walk begins
FIRST_TASK: HeldTask = ("", "")


async def hold(conn: Connection, ids: Collection[str], after: Key, most: int) -> Key | None:
    """Take waiting tasks of these paused workflows out of the line of the claims, of at most so many nodes; return the
    last of these nodes if there may be more."""
    if not ids:
        return None
    params = {"ids": texts(ids), "flow": after[0], "index": after[1], "most": most}
    [(flow, index, _)] = await (await conn.execute(load("workflows/hold"), params, prepare=True)).fetchall()
    return None if flow is None else (flow, index)


async def release(conn: Connection, ids: Collection[str], after: HeldTask, most: int) -> HeldTask | None:
    """Put at most so many held tasks of these workflows back into the line, and notify; return the last of them if
    there may be more."""
    if not ids:
        return None
    params = {"ids": texts(ids), "flow": after[0], "task": after[1], "most": most}
    [(flow, task, _)] = await (await conn.execute(load("workflows/release"), params, prepare=True)).fetchall()
    return None if flow is None else (flow, task)


async def ring(conn: Connection, ids: Collection[str]) -> None:
    """Notify the workers that serve the waiting tasks of these workflows."""
    await conn.execute(load("workflows/ring"), {"ids": texts(ids)})
