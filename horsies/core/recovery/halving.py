"""Recovers a batch of which the database may refuse one task for its content, without holding up the others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import psycopg

from horsies.core.brokers.results import describe, is_about_content
from horsies.core.lifecycle.recovery import InFlight

log = logging.getLogger("horsies.recovery")


async def by_halves(
    found: Sequence[InFlight], recover: Callable[[Sequence[InFlight]], Awaitable[list[InFlight]]]
) -> list[InFlight]:
    """The tasks that `recover` could recover: all at once or, if necessary, in smaller and smaller parts."""
    try:
        return await recover(found)
    except psycopg.Error as problem:
        if not is_about_content(problem):
            raise
        if len(found) == 1:
            fields = {"task_id": found[0].task_id, "task": found[0].task_name}
            log.error("the database refuses to recover a task: %s", describe(problem), extra={"horsies": fields})
            return []
    half = len(found) // 2
    return [*await by_halves(found[:half], recover), *await by_halves(found[half:], recover)]
