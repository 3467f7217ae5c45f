"""Which connection a batch goes over: a task that is alone over the one that was used last, others over their own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from horsies.core.brokers.pool import Pool
from horsies.core.store.tasks import Connection
from horsies.core.worker.hand import Hand


class Lanes:
    """A task that is alone passes claim, start and end in the same backend process, which is awake and has it at hand;
    a process that slept meanwhile would cost more than its statement. As soon as there are two, the stages are in each
    other's way there: then starts and ends have sessions of their own, which plan for many rows."""

    def __init__(self, hand: Hand, claims: Pool, bulk: Pool) -> None:
        self._hand = hand
        self._claims = claims
        self._bulk = bulk

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        is_alone = len(self._hand) == 1 and self._claims.has_idle
        return (self._claims if is_alone else self._bulk).connection()
