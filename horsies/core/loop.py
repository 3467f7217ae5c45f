"""How the worker's services run: each has a step, a delay, and the same backoff while the database is away."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from horsies.core import logs
from horsies.core.db import AWAY, Backoff, describe
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.text import counted

log = logging.getLogger("horsies.worker")


class DatabaseGone(Exception):
    """The database failed `db_retry_max_attempts` times in a row (W-60): the worker gives up."""


class Patience:
    """Counts failures in a row and returns how long to wait; one instance per service."""

    def __init__(self, name: str, config: WorkerResilienceConfig) -> None:
        self._name = name
        self._max_attempts = config.db_retry_max_attempts
        self._backoff = Backoff(config.db_retry_initial_ms / 1000, config.db_retry_max_ms / 1000)
        self._failures = 0

    def succeeded(self) -> None:
        if self._failures:
            tries = counted(self._failures, "failed try", "failed tries")
            log.info("%s: the database answers again after %s", self._name, tries)
        self._failures = 0

    def failed(self, problem: BaseException) -> float:
        """Record one more failure; return the seconds to wait before the next try."""
        self._failures += 1
        if self._max_attempts and self._failures >= self._max_attempts:
            raise DatabaseGone(f"{self._name}: {self._failures} tries in a row failed, the last: {describe(problem)}")
        level = logging.WARNING if logs.is_worth_a_line(self._failures) else logging.DEBUG
        log.log(level, "%s: database error, trying again: %s", self._name, describe(problem))
        return self._backoff.delay(self._failures)


class Service:
    """Runs `step` until stopped. A step that fails is logged and repeated after the delay of its `Patience`."""

    def __init__(
        self,
        name: str,
        config: WorkerResilienceConfig,
        step: Callable[[], Awaitable[None]],
        longest_pause_s: float = math.inf,
    ) -> None:
        self.name = name
        self._patience = Patience(name, config)
        self._step = step
        self._longest_pause_s = longest_pause_s

    async def run(self) -> None:
        while True:
            try:
                await self._step()
            except AWAY as problem:
                await asyncio.sleep(min(self._patience.failed(problem), self._longest_pause_s))
            else:
                self._patience.succeeded()


def every(
    interval_s: float, step: Callable[[], Awaitable[None]], *, at_once: bool = False
) -> Callable[[], Awaitable[None]]:
    """A step that waits and then acts; with `at_once`, it acts the first time without waiting."""
    first = at_once

    async def paced() -> None:
        nonlocal first
        if first:
            first = False
        else:
            await asyncio.sleep(interval_s)
        await step()

    return paced
