"""Lets time pass for the rows of a test (X-13): whatever waits for an instant comes nearer by the same duration, so the
order of everything that waits stays as it is. The clock itself is not touched, neither here nor in the database.

Schedules follow a calendar, so their states do not move. Instead the ordinary scheduler acts as if it were so much
later: it looks once before, because a schedule that nobody has seen yet only begins then, and after that until it has
nothing left to send.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from horsies.core.scheduler.payloads import LocalPreparer
from horsies.core.scheduler.service import Scheduler
from horsies.core.store import testing as store

if TYPE_CHECKING:
    from horsies.core.app import Horsies

LONGEST = timedelta(days=3650)
SLICE_S = 60.0  # nobody waits for anything else meanwhile
MOST_CHECKS = 10_000  # each sends `max_catch_up_runs` of a schedule


class Journey:
    """How much time has passed for each database of an app; a new database begins in the present."""

    def __init__(self, app: Horsies) -> None:
        self._app = app
        self._passed: dict[str, timedelta] = {}

    async def travel(self, duration: timedelta) -> None:
        """Let this much time pass."""
        if not isinstance(duration, timedelta):
            raise TypeError(f"travel takes a timedelta, not {type(duration).__name__}: travel(timedelta(hours=1))")
        if not timedelta(0) <= duration <= LONGEST:
            raise ValueError(f"travel takes a duration from zero to {LONGEST.days} days; time does not go back")
        place = self._app.config.broker.database_url.get_secret_value()
        before = self._passed.get(place, timedelta(0))
        await self._app.get_broker().bridge.call(partial(self._travel, before, duration))
        self._passed[place] = before + duration

    async def _travel(self, before: timedelta, duration: timedelta) -> None:
        hub = self._app.get_broker().hub
        await self._look(before)
        async with hub.connection() as conn:
            await store.travel(conn, duration.total_seconds())
        await self._look(before + duration)
        async with hub.connection() as conn:
            await store.ring(conn)

    async def _look(self, passed: timedelta) -> None:
        """Let the schedules of the app fire, if it has any. A check sends only so many missed runs of each."""
        config, hub = self._app.config.schedule, self._app.get_broker().hub
        if config is None or not config.enabled:
            return
        scheduler = Scheduler(config, hub, LocalPreparer(self._app), slice_s=SLICE_S, ahead=passed)
        fired = -1
        try:
            for _ in range(MOST_CHECKS):
                await scheduler.check()
                async with hub.connection() as conn:
                    before, fired = fired, await store.fired(conn)
                if fired == before:
                    return
        finally:
            scheduler.close()
