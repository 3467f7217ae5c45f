"""Tells parts of a server process that it is about to stop, at the moment when it is asked to.

A server of ASGI ends its lifespan only after the last request, so a request that waits for a result, or a stream of
events, would hold it up. The signal comes earlier. Its handler, which is the server's own, is called as before, after
the functions that are registered here; they run in the main thread between two of its instructions, so they must not
block or take locks. Where there is no handler to call (a test, a thread, a program that lets a signal end it), nothing
is changed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeAlias

SIGNALS = (signal.SIGTERM, signal.SIGINT)
Handler: TypeAlias = Callable[[int, FrameType | None], object]


class _Handlers:
    """The functions to call, in front of the handlers that were there."""

    def __init__(self) -> None:
        self._functions: dict[object, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def add(self, function: Callable[[], None]) -> object:
        key = object()
        with self._lock:
            self._functions[key] = function
            if threading.current_thread() is threading.main_thread():
                self._install()
        return key

    def remove(self, key: object) -> None:
        with self._lock:
            self._functions.pop(key, None)
            if not self._functions and threading.current_thread() is threading.main_thread():
                self._put_back()

    def call_all(self) -> None:
        for function in tuple(self._functions.values()):
            with suppress(Exception):  # whatever it is, the server must hear that it is to stop
                function()

    def _install(self) -> None:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _InFront):
                signal.signal(number, _InFront(handler, self))

    def _put_back(self) -> None:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if isinstance(handler, _InFront):  # otherwise somebody has replaced it, and may still call it
                signal.signal(number, handler.before)


class _InFront:
    """A handler that knows the one before it. There can be several: whoever replaced ours may call it, and if one place
    were kept for all, each would call the other without end."""

    def __init__(self, before: Handler, handlers: _Handlers) -> None:
        self.before = before
        self._handlers = handlers

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._handlers.call_all()
        self.before(number, frame)


_handlers = _Handlers()


@contextmanager
def on_stop(function: Callable[[], None]) -> Iterator[None]:
    """While this is open, a signal that ends the process calls the function first."""
    key = _handlers.add(function)
    try:
        yield
    finally:
        _handlers.remove(key)
