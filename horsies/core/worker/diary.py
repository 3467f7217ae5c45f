"""What a worker publishes about itself: snapshots and answers to pings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import monotonic
from typing import Any

import psutil

from horsies.core.brokers.pool import Pool
from horsies.core.store import workers
from horsies.core.worker.hand import Hand, Phase
from horsies.core.worker.identity import Identity
from horsies.core.worker.pool import Pool as Children


class Diary:
    """A service calls `snapshot` (W-71) at its interval."""

    def __init__(self, pool: Pool, me: Identity, settings: Mapping[str, Any], hand: Hand, children: Children) -> None:
        self._pool = pool
        self._me = me
        self._settings = settings
        self._hand = hand
        self._children = children
        self._born = monotonic()
        self._process = psutil.Process(me.pid)

    async def snapshot(self) -> None:
        """Append one row about this worker."""
        claimed = self._hand.count(Phase.CLAIMED, Phase.STARTING)
        row = {
            **self._settings,
            "worker_id": self._me.worker_id,
            "hostname": self._me.hostname,
            "pid": self._me.pid,
            "tasks_running": len(self._hand) - claimed,
            "tasks_claimed": claimed,
            "memory_usage_mb": self._process.memory_info().rss / 2**20,
            "memory_percent": self._process.memory_percent(),
            "cpu_percent": self._process.cpu_percent(),
            "children_memory_mb": sum(child.rss_mb for child in self._children.children),
            "age": monotonic() - self._born,
        }
        async with self._pool.connection() as conn:
            await workers.snapshot(conn, row)

    def answer_to(self, payload: str) -> str | None:
        """The answer to a ping, or None if it is not for this worker."""
        try:
            ping = json.loads(payload)
            target, nonce = ping.get("target"), ping["id"]
        except (ValueError, KeyError, AttributeError):
            return None
        if target not in (None, self._me.worker_id):
            return None
        pong = {"id": nonce, "worker_id": self._me.worker_id, "hostname": self._me.hostname, "pid": self._me.pid}
        return json.dumps(pong)
