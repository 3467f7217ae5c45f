"""Live updates (M-75) as server-sent events: `{"topic", "ids"}`, never data. All streams of a process share one feed of
changes, which listens only while there are streams.

Each stream merges what its client has not taken yet, so a slow client loses events and no memory. A comment every 15
seconds keeps the connection open. At that moment a stream ends if its client may not look any more, or if nothing is
heard from the database, so that the client polls instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

from starlette.types import Receive, Scope, Send

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.monitoring.changes import ChangeFeed, Changes, MergedChanges, Topic
from horsies.core.text import json_text
from horsies.web.answers import Refusal

MOST_STREAMS = 200
COMMENT_S = 15.0
SEND_S = 30.0  # a client that takes nothing for so long has gone
RETRY_MS = 2_000
HELLO = f"retry: {RETRY_MS}\n: listening\n\n".encode()
COMMENT = b": still here\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy must not collect events
]


@dataclass(frozen=True, slots=True)
class LiveChange:
    """These have changed; an empty list means that many have."""

    topic: Topic
    ids: tuple[str, ...]


class LiveStreams:
    """All streams of one dashboard, on whatever loop each of them is."""

    def __init__(self, broker: PostgresBroker) -> None:
        self._feed = ChangeFeed(broker, self._tell)
        self._streams: set[LiveStream] = set()
        self._lock = threading.Lock()
        self._is_closing = False
        self.told_at = 0.0  # when there was something to tell for the last time; of `monotonic`

    @property
    def is_up(self) -> bool:
        return self._feed.is_up

    def __len__(self) -> int:
        return len(self._streams)

    async def open(self, may_stay: Callable[[], Awaitable[bool]]) -> LiveStream:
        """A stream that hears everything from now on; the caller must close it."""
        stream = LiveStream(self, may_stay)
        with self._lock:
            if self._is_closing or len(self._streams) >= MOST_STREAMS:
                message = f"there are {MOST_STREAMS} streams already" if not self._is_closing else "it is stopping"
                raise Refusal(503, "TOO_MANY_STREAMS", message, {"Retry-After": "10"})
            self._streams.add(stream)
        try:
            problem = await self._feed.join(stream)
        except BaseException:
            self.close(stream)
            raise
        if problem is not None:
            self.close(stream)
            raise Refusal(503, "LIVE_UPDATES_UNAVAILABLE", problem, {"Retry-After": "5"})
        return stream

    def close(self, stream: LiveStream) -> None:
        with self._lock:
            self._streams.discard(stream)
        self._feed.leave(stream)

    def end_all(self) -> None:
        """Every stream ends, and there are no new ones. It can be called from any thread, or from a signal handler."""
        self._is_closing = True
        for stream in tuple(self._streams):
            stream.end()

    async def stop(self) -> None:
        """The same, and the session and the mark in the database are gone afterwards."""
        self.end_all()
        await self._feed.close()
        self._is_closing = False

    def _tell(self, changes: Changes) -> None:
        """On the broker's loop."""
        self.told_at = monotonic()
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.tell(changes)


class LiveStream:
    """One client. As an ASGI application it is the answer."""

    def __init__(self, streams: LiveStreams, may_stay: Callable[[], Awaitable[bool]]) -> None:
        self._streams = streams
        self._may_stay = may_stay
        self._loop = asyncio.get_running_loop()
        self._changes = MergedChanges()
        self._wake = asyncio.Event()
        self._has_ended = False

    def tell(self, changes: Changes) -> None:
        """From any thread."""
        self._call(self._add, changes)

    def end(self) -> None:
        """From any thread."""
        self._has_ended = True
        self._call(self._wake.set)

    def close(self) -> None:
        self._streams.close(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client goes."""
        gone = asyncio.create_task(_until_gone(receive))
        serving = asyncio.create_task(self._serve(send))
        try:
            await asyncio.wait([gone, serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.close()
            for task in (gone, serving):
                task.cancel()
            await asyncio.gather(gone, serving, return_exceptions=True)
        problem = None if serving.cancelled() else serving.exception()
        if problem is not None and not isinstance(problem, OSError | TimeoutError):
            raise problem  # with the others the client has gone, or takes nothing

    async def _serve(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await _send_in_time(send, HELLO)
        check_at = monotonic() + COMMENT_S
        while not self._has_ended:
            changes = await self._next(check_at)
            if not self._has_ended and monotonic() >= check_at:  # however much there is to tell
                if not self._streams.is_up or not await self._may_stay():
                    break
                await _send_in_time(send, COMMENT)
                check_at = monotonic() + COMMENT_S
            if changes is not None:
                await _send_in_time(send, as_events(changes))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self, check_at: float) -> Changes | None:
        """The next changes; None if there are none until then, or if this stream ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, check_at - monotonic())):
                await self._wake.wait()
        if not self._has_ended:
            self._wake.clear()
        return self._changes.take() if self._changes else None

    def _add(self, changes: Changes) -> None:
        self._changes.add_all(changes)
        self._wake.set()

    def _call(self, act: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of this client has ended
            self._loop.call_soon_threadsafe(act, *args)


def as_events(changes: Changes) -> bytes:
    """One event for each topic. JSON has no line breaks, so nothing in an id can begin another event."""
    lines = [json_text({"topic": topic, "ids": list(ids)}) for topic, ids in changes.items()]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


async def _send_in_time(send: Send, body: bytes) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
