"""The statements about queues with a cap: the locks of a claim, and the count of what is in flight (D-56).

A queue is counted from the first claim under a cap on. The triggers of the table of tasks note every move; `fold` adds
them up, and `compare` sees to it that the count is right.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from psycopg import AsyncCursor

from horsies.core.db import Connection
from horsies.core.schema.install import CLAIM, LOAD, claim_purpose, lock_key
from horsies.core.sql import load, texts

ALL = "*"  # stands for every queue; no queue can have this name
LOCK_TIMEOUT = "500ms"  # whoever changes a task meanwhile waits this long at most


class Difference(NamedTuple):
    """By how much the count of a queue was wrong."""

    queue_name: str
    held: int
    running: int


async def lock(conn: Connection, names: Sequence[str]) -> AsyncCursor[Any]:
    """Keep other passes from claiming under the same caps until the end of this transaction (W-23). The
    second column of the answer says whether what is in flight is known for all these queues."""
    keys, shared = [lock_key(CLAIM)], [ALL not in names]
    if ALL not in names:
        queue_keys = sorted(map(_key, names))
        keys, shared = [*keys, *queue_keys], [*shared, *(False for _ in queue_keys)]
    return await conn.execute(load("caps/lock"), {"keys": keys, "shared": shared, "names": texts(names)})


@lru_cache(maxsize=10_000)
def _key(queue: str) -> int:
    return lock_key(claim_purpose(queue))


async def start_counting(conn: Connection, names: Sequence[str]) -> None:
    """Count what is in flight now, under a lock that stops everybody for a moment. It happens once for each queue."""
    async with conn.pipeline(), conn.transaction():
        await conn.execute("SELECT set_config('lock_timeout', %s, TRUE)", [LOCK_TIMEOUT])
        await conn.execute("LOCK TABLE horsies_tasks IN SHARE ROW EXCLUSIVE MODE")
        await conn.execute(load("caps/start"), {"queues": texts(names)})


async def fold(conn: Connection, names: Sequence[str] | None, capped: Sequence[str]) -> None:
    """Add the moves of these queues, or of all, to their sums. `capped` are in use."""
    params = {"queues": None if names is None else texts(names), "capped": texts(capped)}
    await conn.execute(load("caps/fold"), params)


async def compare(conn: Connection) -> list[Difference]:
    """Correct the counts that are wrong, and say by how much they were; nothing if another process is at it."""
    async with conn.transaction():
        [(is_ours,)] = await _rows(conn, "caps/try_lock", {"key": lock_key(LOAD)})
        return [Difference(*row) for row in await _rows(conn, "caps/compare", {})] if is_ours else []


async def stop_counting(conn: Connection, after: timedelta) -> list[str]:
    """Forget the queues for which nobody has had a cap for so long."""
    return [row[0] for row in await _rows(conn, "caps/stop", {"after": after})]


async def _rows(conn: Connection, statement: str, params: dict[str, Any]) -> list[Any]:
    return list(await (await conn.execute(load(statement), params, prepare=False)).fetchall())
