"""The package as the proof uses it: connections that can break at any statement, a builder that knows a library, the
acts of a worker by the store's own functions, and the engine's entry points.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.db.pool import PromptConnection
from horsies.core.models.workflow.plan import WorkflowPlan
from horsies.core.models.workflow.registry import BuildFailed, BuildRequest
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.store import tasks
from horsies.core.store import workflows as flows
from horsies.core.store.tasks import Claimant, Claimed, ClaimOrder
from horsies.core.tasks.moves import Claim, Complete, Fail, Move, Requeue, Retry
from horsies.core.types.status import TaskAttemptOutcome, WorkflowStatus
from horsies.core.workflows import advance, control, finish
from horsies.core.workflows.layout import TreePosition, lay_out, write_layout
from tests.proof_workflows.plans import QUEUES, Library

ME = "worker"
LEASE = timedelta(hours=1)
FAR = timedelta(days=1)
NOW = timedelta(0)


class Broke(psycopg.OperationalError):
    """The connection was cut, as planned."""


class Connection(PromptConnection):  # as in a worker: a step is sent in one go
    """Breaks before a statement if its pool says so: the server rolls back what was open."""

    pool: Pool | None = None

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        if self.pool is not None and self.pool.must_break():
            self.pgconn.finish()
            raise Broke
        return await super().execute(query, params, **options)


class Pool:
    """Lends connections. `breaks_after` so many statements the next one breaks, once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Connection] = []
        self.breaks_after: int | None = None
        self.statements = 0
        self.pids: set[int] = set()

    def must_break(self) -> bool:
        self.statements += 1
        if self.breaks_after is None:
            return False
        self.breaks_after -= 1
        if self.breaks_after >= 0:
            return False
        self.breaks_after = None
        return True

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        conn = self._idle.pop() if self._idle else await self._connect()
        try:
            yield conn
        finally:
            if not conn.closed:
                self._idle.append(conn)

    async def _connect(self) -> Connection:
        conn = await Connection.connect(self._url, autocommit=True, options=BY_INDEX)
        conn.pool = self
        self.pids.add(conn.info.backend_pid)
        return conn

    async def close(self) -> None:
        while self._idle:
            with suppress(psycopg.Error):
                await self._idle.pop().close()


class LibraryBuilder:
    """What a worker's helper child does; it remembers what it was asked for."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.asked: list[BuildRequest] = []
        self.dies_after: int | None = None  # so many calls; then it is as if the helper child had died, once

    async def build(self, request: BuildRequest) -> WorkflowPlan:
        self.asked.append(request)
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.dies_after = None
                raise ConnectionError("the helper child died")
        plan = self._library.find(request.definition_key)
        if plan is None:
            raise BuildFailed(f"there is no definition {request.definition_key!r}")
        return plan


class Engine:
    """The entry points, each over a connection of the pool."""

    def __init__(self, pool: Pool, builder: LibraryBuilder) -> None:
        self.pool, self.builder = pool, builder

    # Workers

    async def begin(self, plan: WorkflowPlan, *, has_deadline: bool = False) -> str:
        workflow_id = str(uuid4())
        layout = lay_out(
            plan, TreePosition(workflow_id, workflow_id), good_until=datetime.now(UTC) + FAR if has_deadline else None
        )
        async with self.pool.connection() as conn:
            assert await write_layout(conn, layout)
        await self.go_on([row["id"] for row in layout.workflows])
        return workflow_id

    async def claim(self, most: int, me: str = ME) -> list[Claimed]:
        order = ClaimOrder(list(QUEUES), [most] * len(QUEUES), [None] * len(QUEUES), most, most, None, False, [])
        async with self.pool.connection() as conn:
            return await tasks.claim(conn, Claimant(me, LEASE, enrolled=False), order)

    async def start(self, claims: Sequence[Claim], me: str = ME) -> tuple[set[str], list[Claim]]:
        """L-25 and L-09 as a worker does it: the tasks that run now, and those whose node somebody had locked."""
        async with self.pool.connection() as conn, conn.transaction():
            numbers, names = [7] * len(claims), ["child"] * len(claims)
            checks = await tasks.start_nodes(conn, me, "host", claims, numbers, names)
            over = [task_id for task_id, check in checks.items() if check.workflow.is_terminal]
            if over:
                await flows.cancel_tasks(conn, sorted(over), finish.CANCELLED.result or "")
            started = {task_id for task_id, check in checks.items() if check.is_started}
            paused = [c for c in claims if c.task_id in checks and checks[c.task_id].workflow is WorkflowStatus.PAUSED]
            if paused:
                await tasks.apply(conn, me, [Requeue(claim) for claim in paused])
        return started, [claim for claim in claims if claim.task_id not in checks]

    async def end(self, moves: Sequence[Move], me: str = ME) -> set[str]:
        async with self.pool.connection() as conn:
            return await tasks.apply(conn, me, moves)

    # The engine

    async def advance(self, task_ids: Collection[str]) -> None:
        await advance.advance(self.pool, task_ids, self.builder)

    async def go_on(self, workflow_ids: Collection[str]) -> None:
        await advance.Worklist(flows=dict.fromkeys(workflow_ids)).work_off(self.pool, self.builder)

    async def reconcile(self) -> int:
        return await Reconciler(self.pool, self.builder, NOW).run()

    async def pause(self, workflow_id: str) -> bool | None:
        return await control.pause(self.pool, workflow_id)

    async def resume(self, workflow_id: str) -> bool | None:
        return await control.resume(self.pool, workflow_id, self.builder)

    async def cancel(self, workflow_id: str) -> bool | None:
        return await control.cancel(self.pool, workflow_id, self.builder)

    async def retry(self, workflow_id: str, names: Collection[str] | None) -> bool | None:
        return await control.retry_nodes(self.pool, workflow_id, names, self.builder)

    async def expire(self, workflow_ids: Iterable[str]) -> None:
        await control.expire(self.pool, list(workflow_ids), self.builder)


def complete(claim: Claim, value: Any) -> Complete:
    return Complete(claim, json.dumps({"ok": value}))


def fail(claim: Claim, code: str = "BROKEN") -> Fail:
    return Fail(claim, json.dumps({"err": {"error_code": code, "message": "it broke"}}), code, "it broke")


def crash(claim: Claim) -> Fail:
    error = {"error_code": {"__builtin_task_code__": "WORKER_CRASHED"}, "message": "it died"}
    return Fail(claim, json.dumps({"err": error}), "WORKER_CRASHED", "it died", TaskAttemptOutcome.WORKER_FAILURE)


def retry(claim: Claim) -> Retry:
    return Retry(claim, 0.0, fail(claim))
