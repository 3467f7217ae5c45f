"""Which connection a batch uses: a single task uses the last used connection, several tasks use separate ones."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from horsies.core.brokers.pool import Pool
from horsies.core.store.tasks import Connection
from horsies.core.worker.hand import Hand


class Lanes:
    """A single task uses the same backend process for claim, start and end, because that process is awake and has its
    data cached; waking another one would cost more than the statement. With two or more tasks the stages would block
    each other, so starts and ends use their own sessions, which plan for many rows."""

    def __init__(self, hand: Hand, claims: Pool, bulk: Pool) -> None:
        self._hand = hand
        self._claims = claims
        self._bulk = bulk

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        is_alone = len(self._hand) == 1 and self._claims.has_idle
        return (self._claims if is_alone else self._bulk).connection()
