"""Which connection a batch goes over: a few rows over the one that was used last, many over one that plans for many."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from horsies.core.brokers.pool import Pool
from horsies.core.store.tasks import Connection

FEW = 8


class Lanes:
    """A task that is alone passes claim, start and end in the same backend process, which is awake and has it at hand;
    a process that slept meanwhile would cost more than its statement. Batches have sessions of their own."""

    def __init__(self, few: Pool, many: Pool) -> None:
        self._few = few
        self._many = many

    def connection(self, rows: int) -> AbstractAsyncContextManager[Connection]:
        return (self._few if rows <= FEW and self._few.has_idle else self._many).connection()
