"""The rows in which a worker describes itself at an interval: its load, its memory and its settings (W-71)."""

import math
from collections.abc import Callable
from time import monotonic
from typing import Any

import psutil

from horsies.core.db import Pool
from horsies.core.store import workers
from horsies.core.worker.children import Children
from horsies.core.worker.config import Identity
from horsies.core.worker.in_hand import InHand, Phase

SETTINGS_EVERY_S = 1800.0


class Snapshots:
    """A service calls `snapshot` (W-71) at its interval. The settings, which may be long, are in the first and then in
    one every half hour, so that retention never leaves a worker without them."""

    def __init__(
        self, pool: Pool, me: Identity, settings: Callable[[], dict[str, Any]], in_hand: InHand, children: Children
    ) -> None:
        self._pool = pool
        self._me = me
        self._settings = settings
        self._in_hand = in_hand
        self._children = children
        self._born = monotonic()
        self._settings_due = -math.inf
        self._process = psutil.Process(me.pid)

    async def snapshot(self) -> None:
        """Append one row about this worker."""
        claimed = self._in_hand.count(Phase.CLAIMED, Phase.STARTING)
        now = monotonic()
        is_full = now >= self._settings_due
        row = {
            **self._settings(),
            **({} if is_full else workers.NO_SETTINGS),
            "worker_id": self._me.worker_id,
            "hostname": self._me.hostname,
            "pid": self._me.pid,
            "tasks_running": len(self._in_hand) - claimed,
            "tasks_claimed": claimed,
            "memory_usage_mb": self._process.memory_info().rss / 2**20,
            "memory_percent": self._process.memory_percent(),
            "cpu_percent": self._process.cpu_percent(),
            "children_memory_mb": sum(child.rss_mb for child in self._children.children),
            "age": now - self._born,
        }
        async with self._pool.connection() as conn:
            await workers.snapshot(conn, row)
        if is_full:
            self._settings_due = now + SETTINGS_EVERY_S
