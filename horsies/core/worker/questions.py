"""What others ask a worker by notifications: whether it lives (a ping), and whether a task is still its own.

Every role that may connect can send notifications, also thousands at once. So questions are collected, and answered
together: one pass at a time, a few passes in a second, and of more questions than a pass takes, the newest.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

from horsies.core.db import AWAY, Pool
from horsies.core.store import workers
from horsies.core.worker.config import Identity

MOST = 100  # questions in one pass
PONG_PAUSE_S = 0.2
CHECK_PAUSE_S = 0.05
LONGEST_PING = 512  # characters; ours have less than 400
LONGEST_NONCE = 64
DRAIN = ""  # no ping has this id


class Questions:
    """`put` takes a question; each `step` waits for some and answers all of them with one call."""

    def __init__(self, answer: Callable[[list[str]], Awaitable[None]], pause_s: float) -> None:
        self._answer = answer
        self._pause_s = pause_s
        self._open: dict[str, None] = {}  # a set that keeps its order
        self._event = asyncio.Event()

    def put(self, question: str) -> None:
        if question not in self._open and len(self._open) >= MOST:
            del self._open[next(iter(self._open))]
        self._open[question] = None
        self._event.set()

    async def step(self) -> None:
        await self._event.wait()
        self._event.clear()
        questions, self._open = list(self._open), {}
        with contextlib.suppress(*AWAY):  # it only costs time: the next ping or heartbeat covers it
            await self._answer(questions)
        await asyncio.sleep(self._pause_s)


class Pings:
    """Answers `horsies_worker_ping` on `horsies_worker_pong` (D-61). A request to drain is on the same channel; whether
    there is one says the row of the worker, which it `refresh`es."""

    def __init__(self, pool: Pool, me: Identity, refresh: Callable[[], Awaitable[None]]) -> None:
        self._pool = pool
        self._me = me
        self._refresh = refresh
        self._questions = Questions(self._pong, PONG_PAUSE_S)
        self.step = self._questions.step

    def hear(self, payload: str) -> None:
        """A ping, or anything else that somebody has sent on the channel."""
        nonce = nonce_of(payload, self._me.worker_id)
        if nonce is not None:
            self._questions.put(nonce)

    async def _pong(self, nonces: list[str]) -> None:
        if DRAIN in nonces:
            await self._refresh()
            nonces = [nonce for nonce in nonces if nonce != DRAIN]
        if not nonces:
            return
        me = {"worker_id": self._me.worker_id, "hostname": self._me.hostname, "pid": self._me.pid}
        async with self._pool.connection() as conn:
            await workers.pong(conn, [json.dumps({"id": nonce, **me}) for nonce in nonces])


def nonce_of(payload: str, worker_id: str) -> str | None:
    """The id of a ping for this worker, or `DRAIN`; None if it is none of these, or for another worker."""
    if len(payload) > LONGEST_PING:
        return None
    try:
        ping = json.loads(payload)
        if ping.get("drain") == worker_id:
            return DRAIN
        nonce, target = ping["id"], ping.get("target")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_one = isinstance(nonce, str) and 0 < len(nonce) <= LONGEST_NONCE
    return nonce if is_one and target in (None, worker_id) else None
