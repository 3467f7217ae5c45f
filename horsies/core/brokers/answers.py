"""Waits for the reply to a statement for at most a given time, whatever has happened to the server.

If psycopg is cancelled while it waits, it asks the server to cancel and waits for the reply to that, which a silent
server never sends. Closing the socket does not help either, because the event loop still watches it (libuv then ends
the whole process). So the stream is shut down: psycopg reads the end of the stream, releases the socket, and fails by
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable
from typing import Any, TypeVar

from psycopg import AsyncConnection

T = TypeVar("T")

LETTING_GO_S = 1.0


async def answered_within(seconds: float, conn: AsyncConnection[Any], asking: Awaitable[T]) -> T:
    """The reply, or a TimeoutError if there is none in time; in that case the connection is closed."""
    asked = asyncio.ensure_future(asking)
    try:
        await asyncio.wait([asked], timeout=seconds)
        if not asked.done():
            raise TimeoutError(f"no answer for {seconds:g} s")
        return await asked
    finally:
        if not asked.done():
            await _hang_up(conn, asked)


async def _hang_up(conn: AsyncConnection[Any], asked: asyncio.Future[Any]) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(conn.pgconn.socket)) as copy:
        copy.shutdown(socket.SHUT_RDWR)
    asked.add_done_callback(_ignore)
    await asyncio.wait([asked], timeout=LETTING_GO_S)
    if asked.done():
        conn.pgconn.finish()
    else:
        asked.cancel()


def _ignore(asked: asyncio.Future[Any]) -> None:
    """Nobody waits for this reply any more."""
    if not asked.cancelled():
        asked.exception()
