"""The statements about queues with a cap: the locks of a claim, and the count of what is in flight (D-56).

A queue is counted from the first claim under a cap on. The triggers of the table of tasks note every move; `fold` adds
them up, and `compare` sees to it that the count is right.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from time import monotonic
from typing import Any, NamedTuple

from psycopg import AsyncCursor, errors

from horsies.core.db import Connection
from horsies.core.schema.install import CLAIM, LOAD, claim_purpose, lock_key
from horsies.core.sql import load, texts

ALL = "*"  # stands for every queue; no queue can have this name
FIRST_PATIENCE_MS = 500  # whoever changes a task meanwhile waits this long at most
PATIENCE_MS = 1_500  # an automatic vacuum gives way after a second
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 30.0
FOLD_EVERY = 32  # claims under a cap, before what they have noted is added up


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


async def in_flight(conn: Connection, names: Sequence[str], *, hard: bool) -> dict[str, int]:
    """What counts for the caps of these queues; a queue that is not counted yet is full."""
    return dict(await _rows(conn, "caps/in_flight", {"names": texts(names), "hard": hard}))


async def start_counting(conn: Connection, names: Sequence[str], patience_ms: int = FIRST_PATIENCE_MS) -> None:
    """Count what is in flight now, under a lock that stops everybody for a moment. It happens once for each queue."""
    async with conn.transaction():
        await conn.execute(load("caps/patience"), {"patience_ms": patience_ms})
        await conn.execute("LOCK TABLE horsies_tasks IN SHARE ROW EXCLUSIVE MODE")
        await conn.execute(load("caps/start"), {"queues": texts(names)})


class Counting:
    """Begins to count queues, again and again with growing pauses, as long as somebody who has written a task keeps his
    transaction open: everybody else who writes one waits for each try. Folds now and then."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pause_s = 0.0
        self._at = 0.0
        self._unfolded = 0  # claims

    async def begin(self, conn: Connection, names: Sequence[str]) -> bool:
        """Whether they are counted now."""
        if self._clock() < self._at:
            return False
        try:
            await start_counting(conn, names, PATIENCE_MS if self._pause_s else FIRST_PATIENCE_MS)
        except errors.LockNotAvailable:
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s or FIRST_PAUSE_S)
            self._at = self._clock() + self._pause_s
            return False
        self._pause_s = 0.0
        return True

    async def fold(self, conn: Connection, names: Sequence[str]) -> None:
        """There is another claim from these queues, so that there is more to add up."""
        self._unfolded += 1
        if self._unfolded >= FOLD_EVERY:
            self._unfolded = 0
            await fold(conn, names, names)


async def fold(conn: Connection, names: Sequence[str] | None, capped: Sequence[str]) -> None:
    """Add the moves of these queues, or of all, to their sums. `capped` are in use."""
    params = {"queues": None if names is None else texts(names), "capped": texts(capped)}
    await conn.execute(load("caps/fold"), params)


async def is_counting(conn: Connection) -> bool:
    """Whether any queue is counted."""
    [(is_any,)] = await _rows(conn, "caps/is_counting", {})
    return bool(is_any)


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
