"""Hand-made graphs, and many connections that do something to them at the same instant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from psycopg import AsyncConnection

from horsies.core.models.workflow.plan import MapOptions, NodePlan, NodeType, WorkflowPlan
from horsies.core.tasks.moves import Claim, Move
from tests.proof_workflows import engine as acts
from tests.proof_workflows.engine import Engine, LibraryBuilder, Pool
from tests.proof_workflows.plans import Library
from tests.proof_workflows.trail import SET_UP, Change, check

T = TypeVar("T")

ALL = 100_000


def node(name: str, *after: int, kind: NodeType = "TASK", **options: Any) -> NodePlan:
    if kind == "SUBWORKFLOW":
        return NodePlan(name, kind, options["sub_workflow_key"], dependencies=after, **options)
    return NodePlan(name, kind, "task", queue_name="default", priority=100, dependencies=after, **options)


def map_over(
    name: str, source: int, *, max_parallel: int | None = None, also: tuple[int, ...] = (), **options: Any
) -> NodePlan:
    after = sorted((source, *also))
    return node(name, *after, kind="MAP", map_options=MapOptions(source, "element", max_parallel), **options)


def plan(*nodes: NodePlan, key: str = "storm", **options: Any) -> WorkflowPlan:
    return WorkflowPlan(key, key, nodes, **options)


class Storm:
    """Several engines over one database; `me` is the one to prepare and to look with."""

    def __init__(self, url: str, watch: AsyncConnection[Any], library: Library, engines: int) -> None:
        self._watch = watch
        self.engines = [Engine(Pool(url), LibraryBuilder(library)) for _ in range(engines)]
        self.me = self.engines[0]

    async def open(self) -> None:
        """Connect all of them beforehand: an instant is short."""
        for engine in self.engines:
            async with engine.pool.connection() as one, engine.pool.connection() as other:
                await one.execute("SELECT 1")
                await other.execute("SELECT 1")

    async def close(self) -> None:
        for engine in self.engines:
            await engine.pool.close()

    async def at_once(self, *work: Awaitable[T]) -> list[T]:
        """All of it from the same moment on."""
        return list(await asyncio.gather(*work))

    async def start_all(self) -> list[Claim]:
        """Every task that is waiting runs now."""
        claims = [Claim(row.id, row.claim_seq) for row in await self.me.claim(ALL)]
        started, locked = await self.me.start(claims)
        assert not locked
        return [claim for claim in claims if claim.task_id in started]

    async def end(self, claims: Sequence[Claim], how: Callable[[Claim], Move] | None = None) -> list[str]:
        """Their tasks end, and nobody has told the engine yet."""
        moves = [how(claim) if how else acts.complete(claim, 1) for claim in claims]
        return sorted(await self.me.end(moves))

    async def end_named(self, claims: Sequence[Claim], name: str, *, fails: bool = False, value: Any = 1) -> list[str]:
        """The same for the tasks of the nodes with this name."""
        own = {task_id for task_id, node_id in await self.rows(_NAMES) if node_id == name}
        how = acts.fail if fails else partial(acts.complete, value=value)
        return await self.end([claim for claim in claims if claim.task_id in own], how)

    async def rows(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        return await (await self._watch.execute(statement.encode(), params)).fetchall()

    async def nodes(self, workflow_id: str) -> dict[str, str]:
        found = await self.rows(
            "SELECT node_id, status FROM horsies_workflow_tasks WHERE workflow_id = %s", workflow_id
        )
        return dict(found)

    async def status(self, workflow_id: str) -> str:
        return str((await self.rows("SELECT status FROM horsies_workflows WHERE id = %s", workflow_id))[0][0])

    async def finish(self, rounds: int = 50) -> None:
        """Whatever can run runs and ends well, until nothing is left."""
        for _ in range(rounds):
            ended = await self.end(await self.start_all())
            await self.me.advance(ended)
            if not ended and not await self.me.reconcile():
                return

    async def check(self) -> list[Change]:
        """The trail has only what the rules know, and nothing has been left for recovery."""
        assert await self.me.reconcile() == 0
        return await check(self._watch)


_NAMES = "SELECT task_id, node_id FROM horsies_workflow_tasks WHERE task_id IS NOT NULL"


@asynccontextmanager
async def storm(url: str, *children: WorkflowPlan, engines: int = 8) -> AsyncIterator[Storm]:
    library = Library()
    library.plans = {child.definition_key: child for child in children}
    async with await AsyncConnection.connect(url, autocommit=True) as watch:
        await watch.execute(SET_UP)
        made = Storm(url, watch, library, engines)
        try:
            await made.open()
            yield made
        finally:
            await made.close()
