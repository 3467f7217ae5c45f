"""Idempotency keys that are free again after a failure: `with_options(reuse_after_failure=True)` (T-57a)."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies import TaskSendErrorCode
from tests.app_support import Add
from tests.factories import count_tasks, task_row
from tests.services.test_send import fail_inserts, somebody_waits_for_a_lock
from tests.support import eventually


async def end(db: AsyncConnection, task_id: str, status: str = "FAILED") -> None:
    await db.execute("UPDATE horsies_tasks SET status = %s WHERE id = %s", [status, task_id])


@pytest.mark.parametrize("status", ["FAILED", "EXPIRED", "CANCELLED"])
async def test_t57a_a_key_is_free_again_after_an_end_without_success(
    add: Add, db: AsyncConnection, status: str
) -> None:
    again = add.with_options(idempotency_key="k", reuse_after_failure=True)
    first = again.send(1, 2).unwrap()
    assert again.send(1, 2).unwrap().task_id == first.task_id
    await end(db, first.task_id, status)
    second = again.send(1, 2).unwrap()
    assert second.task_id != first.task_id
    assert again.send(1, 2).unwrap().task_id == second.task_id
    assert (await task_row(db, first.task_id))["idempotency_key"] is None
    assert (await task_row(db, second.task_id))["idempotency_key"] == "k"
    assert (await task_row(db, first.task_id))["status"] == status


@pytest.mark.parametrize("status", ["PENDING", "CLAIMED", "RUNNING", "COMPLETED"])
async def test_t57a_other_tasks_keep_their_keys(add: Add, db: AsyncConnection, status: str) -> None:
    again = add.with_options(idempotency_key="k", reuse_after_failure=True)
    first = again.send(1, 2).unwrap()
    await end(db, first.task_id, status)
    assert again.send(1, 2).unwrap().task_id == first.task_id
    assert again.send(3, 4).unwrap_err().code is TaskSendErrorCode.PAYLOAD_MISMATCH


async def test_t57_without_it_a_key_outlives_the_failure(add: Add, db: AsyncConnection) -> None:
    first = add.with_options(idempotency_key="k").send(1, 2).unwrap()
    await end(db, first.task_id)
    assert add.with_options(idempotency_key="k").send(1, 2).unwrap().task_id == first.task_id
    other = add.with_options(idempotency_key="k", reuse_after_failure=True).send(3, 4).unwrap()
    assert other.task_id != first.task_id  # another request: nothing is in its way
    assert await count_tasks(db) == 2


async def test_t57a_of_many_simultaneous_sends_one_is_written(add: Add, db: AsyncConnection, database_url: str) -> None:
    again = add.with_options(idempotency_key="k", reuse_after_failure=True)
    await end(db, again.send(1, 2).unwrap().task_id)
    sent = await asyncio.gather(
        *(again.send_async(1, 2) for _ in range(20)), *(asyncio.to_thread(again.send, 1, 2) for _ in range(20))
    )
    assert len({result.unwrap().task_id for result in sent}) == 1
    assert await count_tasks(db) == 2


async def test_t57a_a_send_waits_for_one_in_an_open_transaction(
    add: Add, db: AsyncConnection, database_url: str
) -> None:
    again = add.with_options(idempotency_key="k", reuse_after_failure=True)
    await end(db, again.send(1, 2).unwrap().task_id)
    async with await AsyncConnection.connect(database_url) as theirs:
        first = (await again.with_options(connection=theirs).send_async(1, 2)).unwrap()
        second = asyncio.create_task(again.send_async(1, 2))
        await eventually(lambda: somebody_waits_for_a_lock(db))
        await theirs.commit()
    assert (await second).unwrap().task_id == first.task_id
    assert await count_tasks(db) == 2


async def test_t57a_a_rollback_gives_the_key_back(add: Add, db: AsyncConnection, database_url: str) -> None:
    again = add.with_options(idempotency_key="k", reuse_after_failure=True)
    first = again.send(1, 2).unwrap()
    await end(db, first.task_id)
    with psycopg.connect(database_url) as theirs:
        again.with_options(connection=theirs).send(1, 2).unwrap()
        theirs.rollback()
    assert (await task_row(db, first.task_id))["idempotency_key"] == "k"
    assert await count_tasks(db) == 1


async def test_t57a_many(add: Add, db: AsyncConnection) -> None:
    calls = [add.with_options(idempotency_key=f"k{n}").prepare(n, n) for n in range(4)]
    first = [handle.task_id for handle in add.send_many(calls).unwrap()]
    await end(db, first[1])
    await end(db, first[3], "CANCELLED")
    again = add.with_options(reuse_after_failure=True)
    second = [handle.task_id for handle in again.send_many([*calls, (9, 9)]).unwrap()]
    assert [old == new for old, new in zip(first, second, strict=False)] == [True, False, True, False]
    assert await count_tasks(db) == 4 + 3


async def test_t57a_two_with_the_same_keys_do_not_deadlock(add: Add, db: AsyncConnection) -> None:
    keys = [f"k{n}" for n in range(1200)]
    calls = [add.with_options(idempotency_key=key, reuse_after_failure=True).prepare(1) for key in keys]
    add.send_many(calls).unwrap()
    await db.execute("UPDATE horsies_tasks SET status = 'FAILED'")
    sent = await asyncio.gather(add.send_many_async(calls), add.send_many_async(calls[::-1]))
    one, other = ([handle.task_id for handle in result.unwrap()] for result in sent)
    assert one == other[::-1]
    assert await count_tasks(db) == 2400


async def test_t57a_a_repeated_send_keeps_it(add: Add, db: AsyncConnection) -> None:
    again = add.with_options(idempotency_key="k", reuse_after_failure=True)
    first = again.send(1, 2).unwrap()
    await end(db, first.task_id)
    await fail_inserts(db, times=1)
    error = again.send(1, 2).unwrap_err()
    assert error.payload is not None and error.payload.reuse_after_failure
    second = add.retry_send(error).unwrap()
    assert second.task_id == error.task_id != first.task_id
    await end(db, second.task_id)
    assert add.retry_send(error).unwrap().task_id == second.task_id  # the same send, not a new one


async def test_t57a_it_needs_a_key(add: Add, db: AsyncConnection) -> None:
    alone = add.with_options(reuse_after_failure=True)
    for error in (alone.send(1, 2).unwrap_err(), add.send_many([alone.prepare(1, 2)]).unwrap_err()):
        assert error.code is TaskSendErrorCode.VALIDATION_FAILED
        assert "idempotency_key=" in error.message
    odd = add.with_options(idempotency_key="k", reuse_after_failure="yes").send(1, 2)  # type: ignore[arg-type]
    assert "must be True or False" in odd.unwrap_err().message
    assert await count_tasks(db) == 0
