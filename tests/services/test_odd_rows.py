"""Whatever is in a row, it holds up no other (L-19a, D-14, R-24): every value in every column, one at a time, beside
healthy rows, while all passes of a worker are made. The constraints are dropped first."""

from __future__ import annotations

from time import monotonic

import pytest
from psycopg import AsyncConnection

from horsies.core.db import BY_INDEX, Pool, make_pool
from horsies.core.models.broker import PostgresConfig
from horsies.core.store import odd_rows
from horsies.core.types.status import TaskStatus
from tests.factories import given_task
from tests.odd_rows_support import Planted, constrain, drop_constraints, plant, planted
from tests.recovery_support import LONG_AGO
from tests.services.passes import CLAIMED, PENDING, RUNNING, STALE, Db, Worker, clear, complaints, ends, healthy


@pytest.fixture
async def db(db: Db) -> Db:
    await drop_constraints(db)
    return db


@pytest.mark.slow("every odd value in every column, one at a time")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_constrained", [False, True], ids=["no constraints", "constraints not valid"])
@pytest.mark.parametrize("status", [PENDING, CLAIMED, RUNNING])
async def test_l19a_no_value_in_a_task_holds_up_another(
    db: Db, pool: Pool, status: TaskStatus, is_constrained: bool, caplog: pytest.LogCaptureFixture
) -> None:
    worker, eager = Worker(pool), Worker(pool, concurrency=4)
    found: list[str] = []
    for what in await planted(db, "horsies_tasks"):
        caplog.clear()
        given = {} if status is PENDING else {"claimed_by_worker_id": "gone", **STALE}
        if status is RUNNING:
            given["started_at"] = LONG_AGO
        odd = await given_task(db, status=status, **given)
        await plant(db, what, "id", odd)
        if is_constrained:
            await constrain(db)
        expected = await healthy(db)
        waiting = {await given_task(db) for _ in range(3)}
        try:
            claimed = await worker.claim()
            claimed |= await eager.claim()
            await worker.care()
        except Exception as problem:
            found.append(f"{what}: {problem!r}")
        else:
            if not waiting <= claimed:
                found.append(f"{what}: the healthy ones were not claimed")
            if (reached := await ends(db, expected)) != expected:
                found.append(f"{what}: {list(reached.values())}")
            found += [f"{what}: {line}" for line in complaints(caplog)]
        await clear(db)
        if is_constrained:
            await drop_constraints(db)
    assert found == []


async def test_l19a_one_task_that_cannot_be_expired_keeps_none_back(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's trigger refuses it; its deadline is the oldest."""
    await db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE 'not with me' USING ERRCODE = '23514'; END $$"
        " LANGUAGE plpgsql"
    )
    await db.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON horsies_tasks FOR EACH ROW"
        " WHEN (NEW.status = 'EXPIRED' AND NEW.id = 'refused') EXECUTE FUNCTION refuse()"
    )
    await given_task(db, id="refused", good_until="2019-01-01")
    others = {await given_task(db, good_until=LONG_AGO): "EXPIRED" for _ in range(20)}
    worker = Worker(pool)
    for _ in range(4):
        await worker.reaper.tick()
    assert await ends(db, others) == others
    assert await ends(db, {"refused": ""}) == {"refused": "PENDING"}
    assert complaints(caplog) == []
    lines = [line.getMessage() for line in caplog.records if "cannot be expired" in line.getMessage()]
    assert len(lines) == 3 and "not with me" in lines[0]  # of four


async def test_l19a_an_odd_row_that_is_locked_keeps_no_other_from_being_set_aside(db: Db, database_url: str) -> None:
    """As in a worker, whose statements wait for a lock only for a while."""
    odd = [await given_task(db) for _ in range(4)]
    for task in odd:
        await plant(db, Planted("horsies_tasks", "enqueued_at", "-infinity"), "id", task)
    config = PostgresConfig(database_url=database_url)
    pool = make_pool(config, min_size=1, max_size=2, options=f"{BY_INDEX} -c lock_timeout=50")
    try:
        async with await AsyncConnection.connect(database_url) as somebody:
            await somebody.execute("SELECT id FROM horsies_tasks WHERE id = %s FOR UPDATE", [odd[1]])
            aside = await odd_rows.set_aside_odd(pool)
        assert {task.claim.task_id for task in aside} == {*odd} - {odd[1]}
        assert [task.claim.task_id for task in await odd_rows.set_aside_odd(pool)] == [odd[1]]
    finally:
        await pool.close()


async def test_l19a_a_search_that_found_nothing_is_not_repeated_at_once(
    db: Db, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads everything that waits, and somebody's trigger may refuse a statement every second."""
    search = odd_rows.OddSearch(pool)
    assert await search.set_aside() == []
    await plant(db, Planted("horsies_tasks", "enqueued_at", "infinity"), "id", await given_task(db))
    assert await search.set_aside() == []
    monkeypatch.setattr(odd_rows, "monotonic", lambda: monotonic() + odd_rows.PAUSE_S)
    assert len(await search.set_aside()) == 1
