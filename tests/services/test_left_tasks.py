"""How a worker walks past tasks that it does not take: unknown ones (O-31), and sync ones for which no child is idle
(W-30a). Claims are made as the claimer makes them; the clock of the worker is a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db import Pool
from horsies.core.store import caps, tasks
from horsies.core.store.names import LOOK
from horsies.core.store.tasks import ClaimOrder
from horsies.core.worker.idle import IdleMark
from horsies.core.worker.left_tasks import TURN_S, LeftTasks
from tests.factories import given_task

Db = AsyncConnection[Any]
ME, OTHER = (tasks.Claimant(name, timedelta(minutes=1), False) for name in ("me", "other"))


@dataclass
class Looker:
    """A worker that knows `sync` and `light`, an async task."""

    db: Db
    mark: IdleMark
    now: float = 1_000.0
    left: LeftTasks = field(init=False)

    def __post_init__(self) -> None:
        known = frozenset(("sync", "light"))
        self.left = LeftTasks(lambda: known, lambda: self.now)

    async def claim(self, order: ClaimOrder) -> list[str]:
        line = None
        if self.left.may_matter(order):
            order, line = await self.left.line(self.db, order, self.mark)
        rows = await tasks.claim(self.db, ME, order, line=line) if line is None or line.parts else []
        if line is not None:
            await self.left.claimed(self.db, order, line, rows)
        rows, ours = self.left.ours_first(rows)
        others = [row.id for row in rows[ours:]]
        await self.db.execute(
            "UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE, claimed_by_worker_id = NULL"
            " WHERE id = ANY(%s)", [others],
        )  # fmt: skip
        return [row.id for row in rows[:ours]]

    async def walk(self, order: ClaimOrder) -> tuple[list[str], int]:
        """What claims bring until there is nothing left to walk past, and how many there were."""
        found, count = await self.claim(order), 1
        while self.left.is_walking:
            found, count = found + await self.claim(order), count + 1
        return found, count


@pytest.fixture
def looker(db: Db, database_url: str) -> Looker:
    pool = Pool(lambda: AsyncConnection.connect(database_url), keep=1, max_size=1)
    return Looker(db, IdleMark(pool, "me", 1, ["default"], 5.0))


def an_order(*queues: str, cap: int | None = None, **more: Any) -> ClaimOrder:
    names = list(queues) or ["default"]
    counts = [cap if name == names[0] else None for name in names]
    settings: dict[str, Any] = {"cluster_cap": None, "hard": True, "async_names": ["light"], **more}
    return ClaimOrder(names, [3] * len(names), counts, 3, 3, **settings)


def for_async(**more: Any) -> ClaimOrder:
    """Of a worker whose only child runs async tasks."""
    return an_order(**more)._replace(sync_budget=0, concurrency=4, room=3)


async def given_line(db: Db, name: str, count: int, queue: str = "default") -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, queue_name, enqueued_at)"
        " SELECT %s || n, %s, %s, now() - interval '1 s' FROM generate_series(1, %s) n", [name, name, queue, count],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("queues", "limits"),
    [(["default"], {"cap": 2}), (["default"], {"cluster_cap": 2}), (["tight", "default"], {"cap": 1})],
)
async def test_o31_under_caps_a_known_task_that_somebody_has_locked_is_passed(
    db: Db, database_url: str, looker: Looker, queues: list[str], limits: dict[str, Any]
) -> None:
    order = an_order(*queues, **limits)
    await given_task(db, id="locked", task_name="sync", enqueued_at="2026-01-01Z")
    await given_line(db, "theirs", 2 * LOOK)
    await given_task(db, id="last", task_name="sync")
    async with await AsyncConnection.connect(database_url) as holder:
        await holder.execute("SELECT 1 FROM horsies_tasks WHERE id = 'locked' FOR UPDATE")
        assert await looker.claim(order) == [], "it meets the unknown ones"
        assert (await looker.walk(order))[0] == ["last"]
        await holder.rollback()
    looker.now += 30
    assert (await looker.walk(order))[0] == ["locked"], "it begins again from the front"


@pytest.mark.parametrize("limits", [{"cap": 1}, {"cluster_cap": 1}])
async def test_o31_known_tasks_that_wait_for_a_cap_are_not_passed(
    db: Db, looker: Looker, limits: dict[str, Any]
) -> None:
    order = an_order(**limits)
    await caps.start_counting(db, order.counted)
    await given_task(db, id="running", task_name="sync", enqueued_at="2026-01-01Z")
    [running] = await tasks.claim(db, OTHER, order)
    await given_line(db, "theirs", 10)
    looker.left.ours_first([running._replace(task_name="theirs")])
    await given_task(db, id="first", task_name="sync", enqueued_at="2026-01-02Z")
    await given_line(db, "theirs_too", 2 * LOOK)
    await given_task(db, id="last", task_name="sync")
    for _ in range(3):
        assert await looker.claim(order) == []
        assert not looker.left.is_walking, "it waits for the cap"
    await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED', claimed = FALSE WHERE id = 'running'")
    assert await looker.claim(order) == ["first"]


async def test_o31_a_worker_that_claims_all_the_time_begins_again_from_the_front_too(db: Db, looker: Looker) -> None:
    order = an_order()
    await given_line(db, "theirs", 10)
    assert await looker.claim(order) == [] and looker.left.is_on
    for n in range(4):
        await given_task(db, id=f"new{n}", task_name="sync")
        if n == 1:
            await given_task(db, id="back", task_name="sync", enqueued_at="2026-01-01Z")
        found = await looker.claim(order)
        assert found == ([f"new{n}"] if n < 3 else ["back", "new3"])
        looker.now += 0.4


async def test_w30a_async_tasks_behind_many_sync_ones_are_found_by_a_walk_that_is_not_repeated(
    db: Db, looker: Looker
) -> None:
    order = for_async()
    await given_line(db, "sync", 2 * LOOK + 10)
    await given_task(db, id="a0", task_name="light")
    assert await looker.walk(order) == (["a0"], 3)
    for n in range(3):
        await given_task(db, id=f"b{n}", task_name="light")
        assert await looker.walk(order) == ([f"b{n}"], 1)
    looker.now += 5
    await given_task(db, id="front", task_name="light", enqueued_at="2026-01-01Z")
    assert (await looker.walk(order))[0] == ["front"]
    assert (await looker.claim(order._replace(sync_budget=1, whole=1, room=4)))[0].startswith("sync"), "a child is idle"


async def test_w30a_in_turn_nothing_passes_the_sync_tasks(db: Db, looker: Looker) -> None:
    order = for_async()
    await given_line(db, "sync", 20)
    await given_task(db, id="before", task_name="light", enqueued_at="2026-01-01Z", priority=1)
    await given_task(db, id="a0", task_name="light")
    assert (await looker.walk(order))[0] == ["before"], "a claim comes that far by itself"
    looker.now += 1
    assert (await looker.walk(order))[0] == ["a0"]
    looker.now += TURN_S
    await given_task(db, id="a1", task_name="light")
    await given_task(db, id="before too", task_name="light", enqueued_at="2026-01-01Z", priority=1)
    assert (await looker.walk(order))[0] == ["before too"]
    assert await looker.claim(order) == [] and looker.left.pause_s() == TURN_S
    looker.now += TURN_S
    assert (await looker.walk(order))[0] == ["a1"]


async def test_w30a_whoever_has_a_place_for_sync_tasks_or_none_but_async_ones_looks_no_further(
    db: Db, looker: Looker
) -> None:
    for order in (an_order(), an_order(concurrency=4)):
        assert not looker.left.may_matter(order)
    await given_line(db, "sync", 20)
    only = for_async(async_names=["light", "sync"])
    assert await looker.left.line(db, only, looker.mark) == (only, None)
    assert not looker.left.is_walking and looker.left.pause_s() is None and not looker.left.is_at_work


async def test_w30a_o31_sync_tasks_are_not_passed_by_the_walk_past_unknown_ones(db: Db, looker: Looker) -> None:
    """When a child becomes idle, the first of them is claimed at once."""
    order = for_async()
    await given_line(db, "theirs", 10)
    await looker.claim(an_order())
    await given_line(db, "sync", 2 * LOOK)
    await given_task(db, id="a0", task_name="light")
    assert (await looker.walk(order))[0] == ["a0"]
    looker.now += TURN_S
    assert (await looker.walk(order))[0] == []
    assert (await looker.claim(order._replace(sync_budget=1, whole=1, room=4))) == ["sync1"]
