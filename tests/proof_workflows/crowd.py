"""Several workers at the same time, each with connections of its own, until everything has ended.

What becomes of a task is written in the stars (`fate`): it depends on its node alone. So does the end of every node, as
F-30 knows no order: `foretell` says it, and whatever the workers, operators and broken connections do must lead there.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Collection, Sequence
from time import monotonic
from typing import Any
from zlib import crc32

from psycopg import AsyncConnection

from horsies.core.models.workflow.plan import WorkflowPlan
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Move, Requeue
from tests.proof_workflows import engine as acts
from tests.proof_workflows.engine import Broke, Engine, LibraryBuilder, Pool
from tests.proof_workflows.model import World
from tests.proof_workflows.plans import Library, goes_over_lists
from tests.proof_workflows.rules import ANYTHING
from tests.proof_workflows.workflow import ANY_CODE

PATIENCE = 60.0  # without an end of anything, however long all of it takes on a busy machine
PAUSE = 0.003
_PROGRESS = """
    SELECT count(*) FILTER (WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'SKIPPED')),
           count(*) FILTER (WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'SKIPPED'))
    FROM (SELECT status FROM horsies_workflows UNION ALL SELECT status FROM horsies_workflow_tasks) every
"""
_HELD = "SELECT id, claim_seq FROM horsies_tasks WHERE claimed AND claimed_by_worker_id = %s"


class Fates:
    """How each task ends, by the tag in its arguments, and how often it is tried again before."""

    def __init__(self, seed: int, plans: Collection[WorkflowPlan], failing: int = 5) -> None:
        self._seed = seed
        self._failing = failing  # one in so many
        self._lists = {
            f"{plan.definition_key}:{node.node_id}": (goes_over_lists(plan, n), plan.on_error == "PAUSE")
            for plan in plans
            for n, node in enumerate(plan.nodes)
        }

    def of(self, kwargs: dict[str, Any]) -> tuple[str, Any, int]:
        """Its status, the value or the code, and the number of tries before."""
        tag = kwargs["tag"]
        number = crc32(f"{self._seed} {tag} {json.dumps(kwargs.get('element'))}".encode())
        tries = 1 if number % 7 == 0 else 0
        goes_over, must_be_list = self._lists[tag]
        if number // 7 % self._failing == 0:
            return "FAILED", f"CODE_{number % 3}", tries
        value: Any = number % 100
        if goes_over and (must_be_list or number // 100 % 6):
            value = list(range(number // 1000 % 5))
        return "COMPLETED", value, tries

    def result(self, kwargs: dict[str, Any]) -> tuple[str, Any]:
        status, value, _ = self.of(kwargs)
        if status == "COMPLETED":
            return status, {"ok": value}
        return status, {"err": {"error_code": value, "message": "it broke"}}

    def move(self, row: Claimed) -> Move:
        claim = Claim(row.id, row.claim_seq)
        status, value, tries = self.of(json.loads(row.kwargs or "{}"))
        if row.retry_count < tries:
            return acts.retry(claim)
        return acts.complete(claim, value) if status == "COMPLETED" else acts.fail(claim, value)


def foretell(library: Library, roots: Sequence[WorkflowPlan], fates: Fates) -> World:
    """How everything will end. What depends on the order is left open."""
    world = World(library.find)
    for plan in roots:
        world.begin(plan)
    while (due := world.claimable()) or any(one.status == "PAUSED" for one in world.workflows()):
        for task in due:
            world.start(task)
            world.end(task, *fates.result(task.kwargs))
        world.advance(due)
        for paused in list(world.workflows()):
            world.resume(paused)
    for task in world.tasks():
        task.kwargs = ANYTHING  # type: ignore[assignment]
    for workflow in world.workflows():
        workflow.codes = {ANY_CODE}
    return world


class Crowd:
    """Workers and others over one database. `run` until every workflow has ended."""

    def __init__(self, url: str, library: Library, fates: Fates, seed: int, watch: AsyncConnection[Any]) -> None:
        self._url, self._library, self._fates, self._watch = url, library, fates, watch
        self._chance = random.Random(seed)
        self._is_over = asyncio.Event()
        self.pools: list[Pool] = []
        self.broken = 0

    def engine(self) -> Engine:
        pool = Pool(self._url)
        self.pools.append(pool)
        return Engine(pool, LibraryBuilder(self._library))

    async def run(self, *others: Callable[[], Any], workers: int = 3, breaking: int | None = None) -> None:
        """`breaking`: a connection breaks about every so many statements, and ends are forgotten now and then."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(workers):
                    group.create_task(self._work(f"w{number}", self.engine(), breaking))
                group.create_task(self._resume())
                if breaking is not None:
                    group.create_task(self._again_and_again(self.engine().reconcile))
                for other in others:
                    group.create_task(self._again_and_again(other))
                group.create_task(self._watch_for_the_end())
        finally:
            for pool in self.pools:
                await pool.close()

    async def _watch_for_the_end(self) -> None:
        ended, since = -1, 0.0
        while True:
            row = await (await self._watch.execute(_PROGRESS)).fetchone()
            assert row is not None
            if not row[0]:
                break
            if row[1] != ended:
                ended, since = row[1], monotonic()
            assert monotonic() < since + PATIENCE, f"stuck: {row[0]} nodes and workflows should have ended"
            await asyncio.sleep(PAUSE)
        self._is_over.set()

    async def _again_and_again(self, act: Callable[[], Any]) -> None:
        while not self._is_over.is_set():
            await act()
            await asyncio.sleep(PAUSE * self._chance.random())

    async def _resume(self) -> None:
        engine = self.engine()

        async def resume_what_is_paused() -> None:
            cursor = await self._watch.execute("SELECT id FROM horsies_workflows WHERE status = 'PAUSED'")
            for (workflow_id,) in await cursor.fetchall():
                await engine.resume(workflow_id)
            await asyncio.sleep(10 * PAUSE)

        await self._again_and_again(resume_what_is_paused)

    async def _work(self, me: str, engine: Engine, breaking: int | None) -> None:
        while not self._is_over.is_set():
            if breaking is not None and engine.pool.breaks_after is None:
                engine.pool.breaks_after = self._chance.randrange(2 * breaking)
            try:
                await self._turn(me, engine, is_forgetful=breaking is not None)
            except Broke:
                self.broken += 1
                await self._hand_back(me, engine)

    async def _turn(self, me: str, engine: Engine, *, is_forgetful: bool) -> None:
        rows = {row.id: row for row in await engine.claim(self._chance.choice((1, 2, 5, 20)), me)}
        if not rows:
            await asyncio.sleep(PAUSE)
            return
        ended: list[str] = []
        locked = [Claim(row.id, row.claim_seq) for row in rows.values()]
        while locked:
            started, locked = await engine.start(locked, me)
            moves = [self._fates.move(rows[task_id]) for task_id in started]
            self._chance.shuffle(moves)
            if moves:
                ended += await engine.end(moves, me)
            if locked:
                await asyncio.sleep(PAUSE)
        if not (is_forgetful and self._chance.random() < 0.2):
            for part in _parts(ended, self._chance.choice((1, 3, 100))):
                await engine.advance(part)

    async def _hand_back(self, me: str, engine: Engine) -> None:
        """What it may hold goes back: its code has not run."""
        engine.pool.breaks_after = None
        async with engine.pool.connection() as conn:
            cursor = await conn.execute(_HELD, [me])
            held = [Claim(*row) for row in await cursor.fetchall()]
            if held:
                await tasks.apply(conn, me, [Requeue(claim) for claim in held])


def _parts(ids: Sequence[str], size: int) -> list[Sequence[str]]:
    return [ids[place : place + size] for place in range(0, len(ids), size)]
