"""The statements that only tests of users' own code need: what was sent, letting time pass, and whether everything has
come to its end. `horsies/testing/` calls them; no other process does."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from horsies.core.db import Connection
from horsies.core.sql import load


class OpenWork(NamedTuple):
    """What has not come to its end."""

    in_flight: int
    due: int
    retries: int  # that are not due yet
    workflows: int
    next_retry_s: float  # until the first of the retries is due
    unknown: tuple[str, ...] = ()  # names of due tasks that no worker knows


async def sent(conn: Connection) -> Sequence[tuple[Any, ...]]:
    """Every task that was sent, in the order of sending."""
    return await (await conn.execute(load("testing/sent"))).fetchall()


async def travel(conn: Connection, seconds: float) -> None:
    """Bring everything that is waited for nearer by so many seconds, in the order in which all lock (D-63)."""
    async with conn.transaction():
        for what in ("testing/travel_workflows", "testing/travel_nodes", "testing/travel_tasks"):
            await conn.execute(load(what), {"seconds": seconds})


async def ring(conn: Connection) -> None:
    """Wake workers for the tasks that are due now."""
    await conn.execute(load("testing/ring"))


async def open_work(conn: Connection) -> OpenWork:
    [row] = await (await conn.execute(load("testing/open_tasks"))).fetchall()
    unknown = await (await conn.execute(load("testing/unknown"))).fetchall() if row[1] else []
    return OpenWork(*row)._replace(unknown=tuple(name for (name,) in unknown))


async def fired(conn: Connection) -> int:
    """How often all schedules together have fired."""
    [(count,)] = await (await conn.execute(load("testing/fired"))).fetchall()
    return int(count)
