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


class _InFront:
    """A handler that knows the one before it. There can be several: whoever replaced ours may call it, and if one place
    were kept for all, each would call the other without end."""

    def __init__(self, before: Handler) -> None:
        self.before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for function in tuple(_functions):
            with suppress(Exception):  # whatever it is, the server must hear that it is to stop
                function()
        self.before(number, frame)


_functions: list[Callable[[], None]] = []


@contextmanager
def on_stop(function: Callable[[], None]) -> Iterator[None]:
    """While this is open, a signal that ends the process calls the function first."""
    _functions.append(function)
    for number, handler in _handlers():
        if callable(handler) and not isinstance(handler, _InFront):
            signal.signal(number, _InFront(handler))
    try:
        yield
    finally:
        _functions.remove(function)
        for number, handler in _handlers():
            # Otherwise somebody has replaced it, and may still call it.
            if isinstance(handler, _InFront) and not _functions:
                signal.signal(number, handler.before)


def _handlers() -> list[tuple[signal.Signals, object]]:
    """Those that can be changed here: only the main thread can."""
    is_main = threading.current_thread() is threading.main_thread()
    return [(number, signal.getsignal(number)) for number in SIGNALS] if is_main else []
