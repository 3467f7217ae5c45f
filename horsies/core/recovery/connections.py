"""What a recovery needs of a pool: the worker's own and the hub of a broker both have it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from horsies.core.store.tasks import Connection


class Connections(Protocol):
    """Lends one connection at a time, in autocommit mode."""

    def connection(self) -> AbstractAsyncContextManager[Connection]: ...
