"""The options of one send: deadline, idempotency key, flags, connection, delay.

Whether a deadline, key or delay is valid is decided at the send (`envelope.py`), where a problem is a value; the same
applies to a connection (`caller.py`).
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
    """Deadline, idempotency key and flags of one send, and the connection whose transaction it joins."""

    good_until: datetime | None = None
    idempotency_key: str | None = None
    flags: Flags | None = None
    connection: CallerConnection | None = field(default=None, repr=False)

    def with_defaults(self, others: SendOptions) -> SendOptions:
        """These options, completed by the others; flags of both are merged. `ValueError` says what is wrong with
        flags."""
        if others is NO_OPTIONS or others is self:
            return self
        return replace(
            self,
            good_until=others.good_until if self.good_until is None else self.good_until,
            flags=flags_of(others.flags) | flags_of(self.flags) if self.flags is not None else others.flags,
        )


NO_OPTIONS: Final = SendOptions()


def flags_of(flags: Flags | None) -> dict[str, bool]:
    """Flags as a mapping: a list means true for each. `ValueError` says what is wrong with them."""
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
    """Whether a delay was given; None counts as given, and is refused."""
    return _NO_DELAY if delay is None else delay


_NO_DELAY: Final = object()
