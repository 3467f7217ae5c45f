"""The mark of an idle worker in `horsies_waiting`: a new task wakes one worker that has left such a mark, the one whose
mark is the newest (D-61). When the mark is left and taken back is decided in `claim.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from horsies.core.db import Connection, Pool
from horsies.core.store import workers
from horsies.core.store.names import hand_on

BUSY_S = 0.05  # a worker that has been given all it asked for this long is busy, and needs no notifications


class IdleMark:
    """Requests notifications for inserts, until some time after the request is renewed, at every second poll."""

    def __init__(self, pool: Pool, worker_id: str, wake_key: int, queues: list[str], poll_s: float) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._wake_key = wake_key
        self._queues = queues
        self._poll_s = poll_s
        self._is_old_at = 0.0
        self._full_since: float | None = None
        self.notify = "always"  # the recorded mode, as last heard of
        self.is_left = False

    def forget(self) -> None:
        """It may be gone, or must be written anew."""
        self._is_old_at = 0.0

    def is_due(self, now: float, *, before_long_sleep: bool) -> bool:
        """Whether to leave it now. In the mode off too before a long sleep, because the recorded mode may have changed
        (D-60)."""
        self._full_since = None
        is_old = now >= self._is_old_at or not (self.is_left or self.notify == "off")
        return is_old and (before_long_sleep or self.notify != "off")

    async def leave(self, names: list[str] | None) -> None:
        """Tasks of these names do not wake this worker (O-31)."""
        async with self._pool.connection() as conn:
            await self._leave(conn, names)

    async def hand_on(self, conn: Connection, names: list[str] | None, left: Sequence[tuple[str, str]]) -> None:
        """These tasks, given by queue and id, have names that this worker leaves to others: wake another one. The own
        mark comes first, so that others do not hand them on to this worker again."""
        if self.is_left:
            await self._leave(conn, names)
        await hand_on(conn, self._worker_id, left)

    async def _leave(self, conn: Connection, names: list[str] | None) -> None:
        until, begun = timedelta(seconds=3 * self._poll_s + 5), monotonic()
        self.notify = await workers.announce_idle(conn, self._worker_id, self._wake_key, self._queues, until, names)
        self.is_left = self.notify != "off"
        self._is_old_at = begun + 1.5 * self._poll_s

    def is_busy_for_long(self) -> bool:
        """Asked whenever there is plenty to do. The mark is not taken back for every task that fills the room for a
        moment: each request is a row that is written, and a dead row later."""
        self._full_since = self._full_since or monotonic()
        return monotonic() - self._full_since > BUSY_S

    async def take_back(self) -> None:
        """This worker needs no notifications, and hands on the last one."""
        self._is_old_at = 0.0  # first, because the row may be gone even if the reply is lost
        async with self._pool.connection() as conn:
            await workers.withdraw_idle(conn, self._worker_id, self._queues)
        self.is_left = False
