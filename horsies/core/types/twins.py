"""Blocking twins of async functions: `get = run_sync(get_async)` makes the one of the other, and no logic lives twice.

A coroutine needs an event loop only for what it waits for. Ours wait for a few things, each of which knows how to block
instead: a call over the bridge, a pause, a statement on the caller's connection. They ask `is_blocking`; the coroutine
then runs to its end in the caller's thread without ever being suspended, also inside a running loop of the caller's.
"""

import asyncio
import functools
import threading
import time
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _NoTwin:
    """No blocking twin runs in this thread."""


_NO_TWIN: Final = _NoTwin()


class _Thread(threading.local):
    # The loop, or None, inside which the blocking twin was called. User code that runs there may start a loop of its
    # own, and nothing may block on that loop.
    loop: asyncio.AbstractEventLoop | _NoTwin | None = _NO_TWIN


_thread = _Thread()


def run_sync(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The blocking twin of an async function or method, with the same signature. It is named after it: `get` for
    `get_async`, `sweep_sync` for `sweep`."""

    @functools.wraps(method)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
        outer, _thread.loop = _thread.loop, _get_running_loop()
        coroutine = method(*args, **kwargs)
        try:
            coroutine.send(None)
        except StopIteration as end:
            # Not kept in a variable: this frame may be part of a traceback in the value, and keep the value alive.
            return end.value  # type: ignore[no-any-return]
        finally:
            _thread.loop = outer
        coroutine.close()
        raise RuntimeError(f"{blocking.__qualname__} waits for something that cannot block")

    blocking.__name__ = _twin_of(method.__name__)
    blocking.__qualname__ = _twin_of(method.__qualname__)
    return blocking


def is_blocking() -> bool:
    """Is this code run by a blocking twin?"""
    return _thread.loop is not _NO_TWIN and _thread.loop is _get_running_loop()


async def pause(seconds: float) -> None:
    """Wait, in the way of whoever called."""
    if is_blocking():
        time.sleep(seconds)  # noqa: ASYNC251 - whoever called wants to be blocked
    else:
        await asyncio.sleep(seconds)


def _twin_of(name: str) -> str:
    return name.removesuffix("_async") if name.endswith("_async") else f"{name}_sync"
