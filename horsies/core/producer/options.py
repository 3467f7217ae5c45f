"""What can be said about one send beside its arguments: deadline, idempotency key, flags, connection, delay.

Whether a deadline, key or delay makes sense is judged at the send (`envelope.py`), where a problem is a value; so is a
connection (`caller.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import engine, orm
    from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

    BlockingConnection: TypeAlias = (
        psycopg.Connection[Any] | engine.Connection | orm.Session | orm.scoped_session[orm.Session]
    )
    AwaitingConnection: TypeAlias = (
        psycopg.AsyncConnection[Any]
        | sqlalchemy_asyncio.AsyncConnection
        | sqlalchemy_asyncio.AsyncSession
        | sqlalchemy_asyncio.async_scoped_session[sqlalchemy_asyncio.AsyncSession]
    )
    CallerConnection: TypeAlias = BlockingConnection | AwaitingConnection

Flags: TypeAlias = Iterable[str] | Mapping[str, bool]

_FLAG = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Deadline, idempotency key and flags of one send, and the connection whose transaction it shall be part of."""

    good_until: datetime | None = None
    idempotency_key: str | None = None
    flags: Flags | None = None
    connection: CallerConnection | None = field(default=None, repr=False)

    def with_defaults(self, others: SendOptions) -> SendOptions:
        """These, and where they say nothing the others; flags of both. `ValueError` tells what is wrong with flags."""
        if others is NO_OPTIONS or others is self:
            return self
        return replace(
            self,
            good_until=others.good_until if self.good_until is None else self.good_until,
            flags=flags_of(others.flags) | flags_of(self.flags) if self.flags is not None else others.flags,
        )


NO_OPTIONS: Final = SendOptions()


def flags_of(flags: Flags | None) -> dict[str, bool]:
    """Flags as a mapping: a list means true for each. `ValueError` tells what is wrong with them."""
    if flags is None:
        return {}
    if isinstance(flags, str) or not isinstance(flags, Iterable):
        raise ValueError("flags must be a list of names, or a mapping of names to booleans")
    named = dict(flags) if isinstance(flags, Mapping) else dict.fromkeys(flags, True)
    for name, value in named.items():
        if not isinstance(name, str) or not _FLAG.fullmatch(name):
            raise ValueError(f"flag {name!r} must match ^[a-z][a-z0-9_]*$ and have at most 64 characters")
        if not isinstance(value, bool):
            raise ValueError(f"flag {name!r} must be True or False")
    return {str(name): value for name, value in named.items()}


def given(delay: Any) -> Any:
    """A delay that was given, even if as None: that is no delay, and refused."""
    return _NO_DELAY if delay is None else delay


_NO_DELAY: Final = object()
