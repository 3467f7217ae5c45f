"""One typed function per statement about the claims that a worker holds: it vouches for them, prolongs them, says that
only their results are still to be written, and asks for those that it does not know of.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple

from horsies.core.db import Connection
from horsies.core.sql import load, numbers, texts
from horsies.core.store.tasks import Claimant, columns
from horsies.core.tasks.moves import Claim


class Beat(NamedTuple):
    """One claim in a heartbeat round."""

    claim: Claim
    vouched: bool
    sender: str
    pid: int


async def heartbeat(conn: Connection, worker_id: str, hostname: str, beats: Sequence[Beat]) -> set[str]:
    """Write the heartbeats of the claims that are still held; return their ids."""
    params = {
        **columns([b.claim for b in beats]),
        "vouched": [b.vouched for b in beats],
        "senders": texts([b.sender for b in beats]),
        "pids": numbers([b.pid for b in beats]),
        "worker_id": worker_id,
        "hostname": hostname,
    }
    cursor = await conn.execute(load("tasks/heartbeat"), params)
    return {row[0] for row in await cursor.fetchall()}


async def renew(conn: Connection, who: Claimant, claims: Sequence[Claim], max_age: timedelta) -> set[str]:
    """Extend the leases of these claims; return the ids of those extended."""
    params = {**columns(claims), "worker_id": who.worker_id, "lease": who.lease, "max_age": max_age}
    cursor = await conn.execute(load("tasks/renew"), params)
    return {row[0] for row in await cursor.fetchall()}


async def mark_finalizing(conn: Connection, worker_id: str, claims: Sequence[Claim]) -> None:
    """Record that the code of these tasks has ended and only the result is still to be written."""
    await conn.execute(load("tasks/mark_finalizing"), {**columns(claims), "worker_id": worker_id})


async def working_sessions(conn: Connection, pids: Collection[int]) -> set[int]:
    """Those of these sessions of our own role in which a statement is under way."""
    cursor = await conn.execute(load("workers/working_sessions"), {"pids": numbers(pids)}, prepare=False)
    return {row[0] for row in await cursor.fetchall()}


async def unknown_claims(conn: Connection, worker_id: str, known: Sequence[Claim]) -> list[Claim]:
    """Claims that belong to this worker according to the database, and are not among the `known` ones."""
    params = {**columns(known), "worker_id": worker_id}
    cursor = await conn.execute(load("tasks/unknown_claims"), params, prepare=False)
    return [Claim(*row) for row in await cursor.fetchall()]
