"""What recovery needs from a pool: the worker's own pool and the hub of a broker both provide it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from horsies.core.store.tasks import Connection


class Connections(Protocol):
    """Lends one connection at a time, in autocommit mode."""

    def connection(self) -> AbstractAsyncContextManager[Connection]: ...
