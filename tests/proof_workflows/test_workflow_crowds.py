"""Random workflows run by several workers at the same time: every node comes to the end that the graph and the fates of
its tasks foretell, whatever the order, and the trail has nothing in it that the rules do not know.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from psycopg import AsyncConnection

from tests.proof_pairs.choices import Choices
from tests.proof_workflows.crowd import Crowd, Fates, foretell
from tests.proof_workflows.engine import Pool
from tests.proof_workflows.plans import SIZES, library, workflow
from tests.proof_workflows.stored import differences, read
from tests.proof_workflows.story import CLEAR
from tests.proof_workflows.test_workflow_stories import LONG, explore, stage
from tests.proof_workflows.trail import SET_UP, check

ROOTS = (1, 2, 3)


class Scene:
    """One database for all examples of a test."""

    def __init__(self, url: str, pool: Pool, watch: AsyncConnection[Any]) -> None:
        self.url, self.pool, self.watch = url, pool, watch
        self.tally: Counter[str] = Counter()

    async def play(self, data: bytes, *, breaking: int | None, is_interfered_with: bool) -> None:
        pick = Choices(data)
        made = library(pick)
        roots = [workflow(pick, f"root{n}", pick.of(SIZES), made, list(made.plans)) for n in range(pick.of(ROOTS))]
        seed = pick.of(range(1 << 16))
        fates = Fates(seed, [*roots, *made.plans.values()], failing=pick.of((5, 3, 50)))
        world = foretell(made, roots, fates)
        await self.watch.execute(CLEAR + ", trail")
        crowd = Crowd(self.url, made, fates, seed, self.watch)
        starter = crowd.engine()
        for plan, begun in zip(roots, world.roots, strict=True):
            begun.id = await starter.begin(plan)
        chance, control = random.Random(seed), crowd.engine()

        async def pause_somebody() -> None:
            cursor = await self.watch.execute("SELECT id FROM horsies_workflows ORDER BY random() LIMIT 1")
            for (workflow_id,) in await cursor.fetchall():
                await (control.pause if chance.random() < 0.3 else control.resume)(workflow_id)

        others = [pause_somebody] if is_interfered_with else []
        await crowd.run(*others, workers=pick.of((3, 2, 4)), breaking=breaking)
        self.pool.pids |= {pid for pool in crowd.pools for pid in pool.pids}
        wrong = differences(world, await read(self.watch))
        assert not wrong, "\n".join([*wrong[:20], *map(str, roots), *map(str, made.plans.items())])
        changes = await check(self.watch)
        self.tally.update({"examples": 1, "changes": len(changes), "broken": crowd.broken})


@LONG
def test_f70_f71_f72_several_workers_at_once_end_as_foretold(database_url: str, server_url: str) -> None:
    _explore(database_url, server_url, breaking=None, by_default=4)


@LONG
def test_f50_f51_f52_pause_and_resume_at_any_moment_change_nothing_in_the_end(
    database_url: str, server_url: str
) -> None:
    _explore(database_url, server_url, breaking=None, by_default=3, is_interfered_with=True)


@LONG
def test_l32_r30_r33_r34_r35_r36_a_connection_lost_at_any_statement_changes_nothing_in_the_end(
    database_url: str, server_url: str
) -> None:
    _explore(database_url, server_url, breaking=12, by_default=4)


def _explore(
    database_url: str, server_url: str, *, breaking: int | None, by_default: int, is_interfered_with: bool = False
) -> None:
    with stage(database_url, server_url) as (run, pool, watch):
        run(_execute(watch))
        scene = Scene(database_url, pool, watch)
        explore(
            lambda data: run(scene.play(data, breaking=breaking, is_interfered_with=is_interfered_with)), by_default
        )
        assert breaking is None or scene.tally["broken"]
    print(dict(scene.tally))


async def _execute(watch: AsyncConnection[Any]) -> None:
    await watch.execute(SET_UP)
