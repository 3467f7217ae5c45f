"""What can be asked about tasks and workers (T-09, M-41). The broker answers, and an app asks its broker: both have
these methods from here.

The code of the statements is loaded when they are used, because a program that only sends does not need it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from horsies.core.codec.serde import can_be_stored
from horsies.core.db import as_broker_result, on_bridge
from horsies.core.models.base import MOST
from horsies.core.models.broker import BrokerErrorCode
from horsies.core.types import Ok, run_sync

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.models.broker import BrokerResult, DatabasePing, WorkerPong, WorkerStateSnapshot
    from horsies.core.models.notes import TaskLogLine
    from horsies.core.models.tasks import TaskInfo
    from horsies.core.producer.hub import Hub

T = TypeVar("T")


class Reads:
    """Methods of the app and of the broker."""

    def _reads(self) -> PostgresBroker:
        raise NotImplementedError

    async def get_task_info_async(
        self,
        task_id: str,
        *,
        include_result: bool = False,
        include_failed_reason: bool = False,
        include_attempts: bool = False,
    ) -> BrokerResult[TaskInfo | None]:
        """The state of a task (T-63); `Ok(None)` if there is no such row."""
        broker = self._reads()
        row = await broker.read_row(task_id, include_result, include_failed_reason, include_attempts)
        return row.map(broker.info_of)

    get_task_info = run_sync(get_task_info_async)

    async def get_task_logs_async(self, task_id: str) -> BrokerResult[list[TaskLogLine]]:
        """What a task has logged, if the app has `task_logs` (P-51a); the oldest first."""
        return (await self._reads().read_logs_async(task_id)).map(lambda page: page.lines)

    get_task_logs = run_sync(get_task_logs_async)

    async def ping_database_async(self) -> BrokerResult[DatabasePing]:
        """Check that the database answers."""
        from horsies.core.producer import hub

        return await self._ask(hub.ping_database)

    ping_database = run_sync(ping_database_async)

    async def ping_workers_async(
        self, target_worker_id: str | None = None, timeout_seconds: float = 2.0, min_responses: int | None = None
    ) -> BrokerResult[list[WorkerPong]]:
        """Ask the workers to answer; this ends early when enough workers have answered."""
        from horsies.core.producer import hub

        return await self._ask(lambda found: hub.ping_workers(found, target_worker_id, timeout_seconds, min_responses))

    ping_workers = run_sync(ping_workers_async)

    async def list_worker_states_async(self) -> BrokerResult[list[WorkerStateSnapshot]]:
        """The newest snapshot of each worker."""
        from horsies.core.store import workers

        return await self._ask(_connected(workers.newest))

    list_worker_states = run_sync(list_worker_states_async)

    async def get_worker_state_async(self, worker_id: str) -> BrokerResult[WorkerStateSnapshot | None]:
        """The newest snapshot of one worker."""
        found = await self.get_worker_state_history_async(worker_id, 1)
        return found.map(lambda states: states[0] if states else None)

    get_worker_state = run_sync(get_worker_state_async)

    async def get_worker_state_history_async(
        self, worker_id: str, limit: int | None = None
    ) -> BrokerResult[list[WorkerStateSnapshot]]:
        """The snapshots of one worker, newest first."""
        from horsies.core.store import workers

        if not can_be_stored(worker_id) or (limit is not None and limit < 1):
            return Ok([])
        most = None if limit is None else min(limit, MOST)
        return await self._ask(_connected(lambda conn: workers.history(conn, worker_id, limit=most)))

    get_worker_state_history = run_sync(get_worker_state_history_async)

    async def _ask(self, ask: Callable[[Hub], Awaitable[T]]) -> BrokerResult[T]:
        return await _answer(self._reads(), ask)


@as_broker_result(BrokerErrorCode.DB_OPERATION_FAILED)
@on_bridge
async def _answer(broker: PostgresBroker, ask: Callable[[Hub], Awaitable[T]]) -> T:
    return await ask(broker.hub)


def _connected(read: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> Callable[[Hub], Awaitable[T]]:
    async def ask(hub: Hub) -> T:
        async with hub.connection() as conn:
            return await read(conn)

    return ask
