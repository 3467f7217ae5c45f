"""Adds what a worker has counted to the statistics in the database (D-59): one statement a minute, and none if nothing
has ended. Nothing waits for it, and a write that is lost costs a minute of numbers. While the database is away the
counts are kept and added later. What the database refuses is dropped, and this is told once in a while.

The finalizer counts the tasks of this worker (`finalize.OutcomeLog`); what its recovery does to tasks of others is
heard as events. The minute is that of the database's clock in the middle of the time in which was counted.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from random import uniform
from time import monotonic, time
from typing import Any

from horsies.core import events
from horsies.core.db import AWAY, Connections, describe, is_about_content
from horsies.core.logs import is_worth_a_line
from horsies.core.models.tasks import OperationalErrorCode, OutcomeCode
from horsies.core.store import rollup
from horsies.core.tasks.moves import Expire, Fail, Retry
from horsies.core.tasks.tally import EndKind
from horsies.core.worker.fence import Pulse
from horsies.core.worker.finalize import OutcomeLog

log = logging.getLogger("horsies.worker")

MINUTE_S = 60.0
MOST_LATE_S = 3.0  # so that the workers of a fleet do not write at the same moment
WRITE_S = 10.0
FLUSH_S = 3.0  # at the end of the worker

_RECOVERED: dict[type, tuple[EndKind, str]] = {
    Fail: (EndKind.FAILED, OperationalErrorCode.WORKER_CRASHED.value),
    Retry: (EndKind.RETRIED, OperationalErrorCode.WORKER_CRASHED.value),
    Expire: (EndKind.EXPIRED, OutcomeCode.TASK_EXPIRED.value),
}
_NAMED = {
    "tasks.expired": (EndKind.EXPIRED, OutcomeCode.TASK_EXPIRED.value),
    "tasks.unknown": (EndKind.FAILED, OperationalErrorCode.WORKER_RESOLUTION_ERROR.value),
}


class Statistics:
    """Each `step` waits for the end of a minute, and writes what was counted in it."""

    def __init__(self, database: Connections, outcomes: OutcomeLog, pulse: Pulse) -> None:
        self._database = database
        self._outcomes = outcomes
        self._tally = outcomes.tally
        self._pulse = pulse
        self._since = monotonic()
        self._failures = 0
        self._unsubscribe = events.subscribe(self._hear, rare_only=True)

    async def step(self) -> None:
        now = self._server_time()
        self._outcomes.ahead_s = now - monotonic()
        await asyncio.sleep(MINUTE_S - now % MINUTE_S + uniform(0.0, MOST_LATE_S))
        await self.write()

    async def close(self) -> None:
        """Write what is left, for a short time."""
        self._unsubscribe()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self.write()

    async def write(self) -> None:
        """Add what was counted since the last time."""
        now = monotonic()
        groups, age_s, began = self._tally.take(), (now - self._since) / 2, self._since
        self._since = now
        if not groups:
            return
        try:
            async with asyncio.timeout(WRITE_S), self._database.connection() as conn:
                await rollup.add(conn, groups, age_s)
        except Exception as problem:
            if not isinstance(problem, AWAY) or _is_refused(problem):  # a mistake of ours does not stop the worker
                self._tell("are dropped", problem)
                return
            self._tally.put_back(groups)
            self._since = began
            self._tell("are added later", problem)
        except BaseException:
            self._tally.put_back(groups)
            self._since = began
            raise
        else:
            self._failures = 0

    def _server_time(self) -> float:
        """In seconds since 1970; as far as is known, by the database's clock."""
        server_s = self._pulse.server_time()
        return time() if server_s is None else server_s

    def _hear(self, event: str, facts: Mapping[str, Any]) -> None:
        if facts["by"] != self._outcomes.worker_id:
            return
        if event == "tasks.recovered":
            for task, kind in facts["moved"]:
                if kind in _RECOVERED:
                    end, code = _RECOVERED[kind]
                    self._tally.group(task.queue_name, task.task_name, code).ended(end, task.task_id)
        elif event in _NAMED:
            end, code = _NAMED[event]
            for (queue, task_name), number in facts["names"].items():
                self._tally.group(queue, task_name, code).ended(end, number=number)

    def _tell(self, what: str, problem: BaseException) -> None:
        self._failures += 1
        if is_worth_a_line(self._failures):
            log.warning("statistics cannot be written and %s: %s", what, describe(problem))


def _is_refused(problem: BaseException) -> bool:
    """Whether it would be refused again: for what it says, or because a right or the table is missing."""
    state = str(getattr(problem, "sqlstate", None) or "")
    return is_about_content(problem) or state.startswith("42")
