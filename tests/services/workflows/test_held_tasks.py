"""Waiting tasks of a paused workflow leave the line of the claims, and return with it (F-50, F-52, R-39)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies import OnError
from horsies.core.db.pool import Pool
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.store import recovery
from horsies.core.workflows import control
from tests.services.workflows.flows import node, started
from tests.services.workflows.hand import Hand, Tasks

Db = AsyncConnection[Any]


async def held(db: Db) -> list[bool]:
    cursor = await db.execute("SELECT is_held FROM horsies_tasks WHERE status = 'PENDING' ORDER BY id")
    return [row[0] for row in await cursor.fetchall()]


async def reconcile(pool: Pool) -> None:
    await Reconciler(pool, None, timedelta(seconds=10)).run()


async def test_f50_f52_pause_takes_the_waiting_tasks_out_of_the_line_and_resume_puts_them_back(
    clean_db: Db, clean_pool: Pool, hand: Hand, module_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "AT_ONCE", 2)
    flow = await started(clean_db, *(node(f"n{n}") for n in range(5)))
    other = await started(clean_db, node("other"))
    assert await control.pause(clean_pool, flow) is True
    assert sorted(await held(clean_db)) == [False] + [True] * 5
    assert len(await hand.claimable()) == 1
    async with await psycopg.AsyncConnection.connect(module_url, autocommit=True) as ear:
        await ear.execute("LISTEN task_queue_default")
        assert await control.resume(clean_pool, flow, None) is True
        assert [told async for told in ear.notifies(timeout=5, stop_after=1)]
    assert await held(clean_db) == [False] * 6
    assert len(await hand.claimable()) == 6
    assert await control.pause(clean_pool, other) is True and sorted(await held(clean_db)) == [False] * 5 + [True]


async def test_f50_a_held_task_expires_and_is_cancelled_like_every_other(clean_db: Db, clean_pool: Pool) -> None:
    flow = await started(clean_db, node("a"), node("b"))
    assert await control.pause(clean_pool, flow) is True
    await clean_db.execute(
        "UPDATE horsies_tasks SET good_until = now() - interval '1 s' WHERE id = (SELECT min(id) FROM horsies_tasks)"
    )
    assert len(await recovery.expire_waiting(clean_db)) == 1
    assert await control.cancel(clean_pool, flow, None) is True
    cursor = await clean_db.execute("SELECT status FROM horsies_tasks ORDER BY status")
    assert await cursor.fetchall() == [("CANCELLED",), ("EXPIRED",)]


async def test_f50_a_task_that_somebody_has_locked_does_not_keep_the_others_in_the_line(
    clean_db: Db, clean_pool: Pool, module_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "AT_ONCE", 2)
    flow = await started(clean_db, *(node(f"n{n}") for n in range(5)))
    async with await psycopg.AsyncConnection.connect(module_url) as other:
        await other.execute("SELECT FROM horsies_tasks ORDER BY id LIMIT 1 FOR UPDATE")
        assert await control.pause(clean_pool, flow) is True
    assert await held(clean_db) == [False, True, True, True, True]
    await reconcile(clean_pool)
    assert await held(clean_db) == [True] * 5


class Interrupted:
    """A pool in which something happens before its connection is asked for the n-th time."""

    def __init__(self, pool: Pool, nth: int, act: Callable[[], Awaitable[object]]) -> None:
        self._pool, self._left, self._act = pool, nth, act

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Db]:
        self._left -= 1
        if self._left == 0:
            await self._act()
        async with self._pool.connection() as conn:
            yield conn


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("is_paused", [True, False])
async def test_r39_a_death_between_two_parts_leaves_the_rest_to_reconciliation(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch, nth: int, is_paused: bool
) -> None:
    monkeypatch.setattr(control, "AT_ONCE", 2)
    flow = await started(clean_db, *(node(f"n{n}") for n in range(7)))

    async def die() -> None:
        raise psycopg.OperationalError("the process has died here")

    dying = Interrupted(clean_pool, 1 + nth, die)
    if is_paused:
        assert await control.pause(dying, flow) is True
    else:
        assert await control.pause(clean_pool, flow) is True
        assert await control.resume(dying, flow, None) is True
    assert sorted(await held(clean_db)).count(is_paused) == 2 * (nth - 1)
    await reconcile(clean_pool)
    assert await held(clean_db) == [is_paused] * 7


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_f50_f52_whoever_pauses_or_resumes_last_is_followed_by_all_tasks(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Another process resumes it while it is being paused, and pauses it while it is being resumed."""
    monkeypatch.setattr(control, "AT_ONCE", 2)
    flow = await started(clean_db, *(node(f"n{n}") for n in range(7)))
    resume, pause = partial(control.resume, clean_pool, flow, None), partial(control.pause, clean_pool, flow)
    assert await control.pause(Interrupted(clean_pool, 1 + nth, resume), flow) is True
    assert await held(clean_db) == [False] * 7
    assert await pause() is True
    assert await control.resume(Interrupted(clean_pool, 1 + nth, pause), flow, None) is True
    assert await held(clean_db) == [True] * 7


async def test_r39_marks_that_a_death_after_the_pause_or_the_resume_left_behind_are_set_right(
    clean_db: Db, clean_pool: Pool, hand: Hand
) -> None:
    paused = await started(clean_db, node("a"), node("b"))
    running = await started(clean_db, node("c"), node("d"))
    assert await control.pause(clean_pool, paused) is True
    await clean_db.execute("UPDATE horsies_tasks SET is_held = NOT is_held")
    assert await hand.claimable() == set(), "neither is claimed: one by its mark, one by its workflow"
    await reconcile(clean_pool)
    cursor = await clean_db.execute("SELECT DISTINCT workflow_id, is_held FROM horsies_tasks")
    assert set(await cursor.fetchall()) == {(paused, True), (running, False)}
    assert len(await hand.claimable()) == 2


async def test_r39_f41_a_workflow_that_an_error_has_paused_is_held_by_reconciliation(
    tasks: Tasks, hand: Hand, clean_db: Db, clean_pool: Pool
) -> None:
    handle = tasks.diamond(on_error=OnError.PAUSE).start().unwrap()
    await hand.finish(handle, "a")
    await hand.fail(handle, "b")
    assert await held(clean_db) == [False] and await hand.claimable() == set()
    await reconcile(clean_pool)
    assert await held(clean_db) == [True]
    assert (await handle.retry_failed_async()).unwrap() is True
    assert await held(clean_db) == [False, False] and len(await hand.claimable()) == 2


async def test_r39_a_workflow_whose_tasks_cannot_be_held_does_not_hold_up_the_others(
    clean_db: Db, clean_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's trigger refuses to change one of its tasks; another workflow has a node that nobody has moved on."""
    paused = await started(clean_db, node("a"))
    stuck = await started(clean_db, node("b"))
    await clean_db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE check_violation USING MESSAGE = 'never'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE OF is_held ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    assert await control.pause(clean_pool, paused) is True
    await clean_db.execute(
        "UPDATE horsies_tasks SET status = 'COMPLETED', result = '{}', completed_at = now() - interval '1 hour'"
        " WHERE workflow_id = %s",
        [stuck],
    )
    await reconcile(clean_pool)
    cursor = await clean_db.execute("SELECT id, status FROM horsies_workflows")
    assert dict(await cursor.fetchall()) == {paused: "PAUSED", stuck: "COMPLETED"}
    assert "left for later" in caplog.text
