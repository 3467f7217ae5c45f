"""Whether the tables are those of this code (M-70). The version is read at most once a minute; a database that does not
answer, or has no tables yet, is asked again after two seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic

from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.core.schema.install import SCHEMA_VERSION
from horsies.core.types import Ok
from horsies.web.answers import Refusal, unavailable

KNOWN_S = 60.0
UNKNOWN_S = 2.0


class SchemaState(StrEnum):
    """What is known about the tables."""

    MATCH = "MATCH"
    MISMATCH = "MISMATCH"
    ABSENT = "ABSENT"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """The state, the version in the database if there is one, and why nothing is known."""

    state: SchemaState
    version: int | None = None
    problem: str | None = None

    def refuse_reading(self) -> None:
        """Raise if nothing can be read."""
        if self.state is SchemaState.ABSENT:
            message = "there are no horsies tables in this database; horsies init-db creates them"
            raise Refusal(503, "SCHEMA_ABSENT", message, {"Retry-After": "2"})
        if self.state is SchemaState.UNKNOWN:
            raise unavailable(self.problem or "the database has not been reached yet")

    def refuse_acting(self) -> None:
        """Raise if nothing may be changed."""
        self.refuse_reading()
        if self.state is SchemaState.MISMATCH:
            raise Refusal(409, "SCHEMA_INCOMPATIBLE", self.mismatch())

    def mismatch(self) -> str:
        return f"the tables are of version {self.version}, and this dashboard knows version {SCHEMA_VERSION}"


def judged(found: MonitoringResult[int | None]) -> SchemaFacts:
    """What the reading means."""
    if not isinstance(found, Ok):
        return SchemaFacts(SchemaState.UNKNOWN, problem=found.error.message)
    version = found.value
    if version is None:
        return SchemaFacts(SchemaState.ABSENT)
    return SchemaFacts(SchemaState.MATCH if version == SCHEMA_VERSION else SchemaState.MISMATCH, version)


class SchemaCheck:
    """Remembers the last reading; requests that come meanwhile share one."""

    def __init__(
        self, read: Callable[[], Awaitable[MonitoringResult[int | None]]], clock: Callable[[], float] = monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._known = SchemaFacts(SchemaState.UNKNOWN)
        self._until = float("-inf")
        self._reading: asyncio.Task[SchemaFacts] | None = None

    async def look(self) -> SchemaFacts:
        if self._clock() < self._until:
            return self._known
        reading = self._reading
        if reading is None or reading.done() or reading.get_loop() is not asyncio.get_running_loop():
            reading = self._reading = asyncio.create_task(self._look())
        return await asyncio.shield(reading)

    async def _look(self) -> SchemaFacts:
        self._known = judged(await self._read())
        is_known = self._known.state in (SchemaState.MATCH, SchemaState.MISMATCH)
        self._until = self._clock() + (KNOWN_S if is_known else UNKNOWN_S)
        return self._known
