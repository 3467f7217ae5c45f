"""Waiting without guessing: poll for what must come true, with a deadline that only a broken build reaches."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 45.0


async def eventually(
    probe: Callable[[], T | Awaitable[T]], timeout: float = PATIENCE, *, every: float = 0.02, what: str = ""
) -> T:
    """Call `probe` (plain or async) until it returns something true, and return that. An AssertionError in it means
    "not yet"; the last one is what the test fails with."""
    deadline = time.monotonic() + timeout
    while True:
        value, failure = None, None
        try:
            answer = probe()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
        except AssertionError as error:
            failure = error
        if time.monotonic() >= deadline:
            raise AssertionError(_never(what or _name(probe), timeout, value)) from failure
        await asyncio.sleep(every)


def eventually_sync(probe: Callable[[], T], timeout: float = PATIENCE, *, every: float = 0.02, what: str = "") -> T:
    """The same for a test without an event loop."""
    deadline = time.monotonic() + timeout
    while True:
        value, failure = None, None
        try:
            value = probe()
            if value:
                return value
        except AssertionError as error:
            failure = error
        if time.monotonic() >= deadline:
            raise AssertionError(_never(what or _name(probe), timeout, value)) from failure
        time.sleep(every)


def _never(what: str, timeout: float, value: object) -> str:
    return f"{what} did not come true within {timeout:g} s; the last answer was {value!r}"


def _name(probe: Callable[[], object]) -> str:
    return getattr(probe, "__qualname__", repr(probe))
