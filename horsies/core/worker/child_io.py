"""The io thread of a child: reads the messages of the supervisor, reports that the child is alive, and watches the
start hooks.

It lives as long as the child and never runs user code. Whatever the main thread does, this thread notices within
moments that the supervisor is gone, and ends the process. If the supervisor exists but is silent, as when it is
stopped, the child waits until the time that the last message allowed; after that others may take over its tasks
(R-101).
"""

from __future__ import annotations

import math
import os
import select
import sys
import threading
from time import monotonic
from typing import Protocol

from horsies.core.worker import wire
from horsies.core.worker.fence import clock
from horsies.core.worker.inbox import Inbox, Item
from horsies.core.worker.uplink import EXIT_BROKEN, EXIT_LOST, Uplink, end_alone
from horsies.core.worker.wire import Decoder, Frame, Kind

WATCH_EVERY_MS = 50  # while the child starts


class Running(Protocol):
    """What the io thread must know about the work of the main thread."""

    def tokens(self) -> list[int]: ...
    def stop(self, token: int) -> None: ...


class ChildIO:
    """It is started before the app is loaded; from `serve` on it knows what runs."""

    def __init__(self, uplink: Uplink, inbox: Inbox, beat_interval_ms: int) -> None:
        self._uplink = uplink
        self._inbox = inbox
        self._interval = beat_interval_ms / 1000
        self._next_beat = 0.0
        self._running: Running | None = None
        self._limit: tuple[float, str] | None = None
        self._poll = select.poll()
        self._decoder = Decoder()
        self._until = math.inf  # it may go on so long without another word

    def start(self) -> None:
        threading.Thread(target=self._run, name="horsies-io", daemon=True).start()

    def limit(self, seconds: float, what: str) -> None:
        """End the child with this text if `unlimit` is not called in time."""
        self._limit = (monotonic() + seconds, what)

    def unlimit(self) -> None:
        self._limit = None

    def is_late(self) -> bool:
        """Whether its time is over, as after a pause. In that case nothing may begin until waiting messages have been
        read: if there are none, this thread ends the process in a moment."""
        return clock() > self._until

    def serve(self, running: Running) -> None:
        """The child is ready: from now on there may be tasks to report and to stop."""
        self._running = running

    def _run(self) -> None:
        try:
            self._poll.register(self._uplink.sock, select.POLLIN)
            while True:
                heard = self._receive() if self._poll.poll(self._timeout_ms()) else []
                if clock() > self._until:
                    self._end_if_alone(heard)
                self._hear(heard)
                self._beat()
                self._watch()
        except BaseException:
            if not sys.is_finalizing():
                sys.excepthook(*sys.exc_info())
            os._exit(EXIT_LOST)

    def _timeout_ms(self) -> float | None:
        if self._running is None:
            return WATCH_EVERY_MS
        if not self._inbox.held:
            return None
        return max(0.0, min(self._next_beat - monotonic(), self._until - clock()) * 1000) + 1

    def _receive(self) -> list[Frame]:
        return self._decoder.feed(self._uplink.receive())

    def _end_if_alone(self, heard: list[Frame]) -> None:
        """Its time is over. Read all waiting messages: unless one of them extends the time, nothing may run here any
        more."""
        while self._poll.poll(0):
            heard += self._receive()
        for kind, number, _ in heard:
            if kind is Kind.WORD:
                self._until = number / 1e9
        if clock() > self._until and (self._inbox.held or any(kind is Kind.RUN for kind, _, _ in heard)):
            end_alone()

    def _hear(self, frames: list[Frame]) -> None:
        items = []
        for kind, number, parts in frames:
            if kind is Kind.RUN:
                items.append(Item(number, parts))
                continue
            if items:  # whatever else was said, was said after these
                self._put(items)
                items = []
            if kind is Kind.TAKE_BACK:
                self._give_up(wire.tokens_of(parts))
            elif kind is Kind.STOP:
                self._stop(number)
            elif kind is Kind.WORD:
                self._until = number / 1e9
                if clock() > self._until:
                    self._end_if_alone(frames)  # what it reads, this loop comes to as well
            elif kind is Kind.BYE:
                self._inbox.close()
        if items:
            self._put(items)

    def _put(self, items: list[Item]) -> None:
        if not self._inbox.held:
            self._next_beat = monotonic() + self._interval
        self._inbox.put(items)

    def _give_up(self, tokens: list[int]) -> None:
        removed = self._inbox.take_back(tokens)
        if removed:
            self._uplink.send(wire.pack_tokens(Kind.GAVE_UP, removed))

    def _stop(self, token: int) -> None:
        if self._inbox.take_back([token]):
            self._uplink.send(wire.pack_tokens(Kind.GAVE_UP, [token]))
        elif self._running is not None:
            self._running.stop(token)

    def _beat(self) -> None:
        if self._running is None or not self._inbox.held:
            return
        now = monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + self._interval
        tokens = self._running.tokens()
        if tokens:
            self._uplink.send_if_room(wire.pack_tokens(Kind.BEAT, tokens))

    def _watch(self) -> None:
        limit = self._limit
        if limit is not None and monotonic() > limit[0]:
            self._uplink.send(wire.pack(Kind.BROKEN, 0, limit[1].encode("utf-8", "replace")))
            os._exit(EXIT_BROKEN)
