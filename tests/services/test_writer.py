"""Sends that wait at the same moment share a commit, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from psycopg import AsyncConnection

from horsies.core.app import Horsies
from horsies.core.models.tasks import TaskSendErrorCode
from horsies.core.task_decorator import TaskFunction
from horsies.core.types.result import Ok
from tests.app_support import an_app, define_add
from tests.factories import count_tasks

Add = TaskFunction[[int, int], int]


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    with an_app(database_url) as app:
        yield app


@pytest.fixture
def add(app: Horsies) -> Add:
    return define_add(app)


async def test_many_sends_at_once_take_few_transactions_and_keep_their_own_ids(add: Add, db: AsyncConnection) -> None:
    (await add.send_async(0, 0)).unwrap()
    handles = [sent.unwrap() for sent in await asyncio.gather(*(add.send_async(n, n) for n in range(300)))]
    rows = await (await db.execute("SELECT id, args, xmin::text FROM horsies_tasks WHERE args <> '[0,0]'")).fetchall()
    args_of = {task_id: args for task_id, args, _ in rows}
    assert [args_of[h.task_id] for h in handles[1:]] == [f"[{n},{n}]" for n in range(1, 300)]
    assert len({transaction for _, _, transaction in rows}) < 100


async def test_one_send_that_the_database_refuses_does_not_hurt_the_others(add: Add, db: AsyncConnection) -> None:
    await db.execute("ALTER TABLE horsies_tasks ADD CHECK (args <> '[13,13]')")
    sent = await asyncio.gather(*(add.send_async(n, n) for n in range(50)))
    assert [n for n, one in enumerate(sent) if not isinstance(one, Ok)] == [13]
    assert sent[13].unwrap_err().code is TaskSendErrorCode.ENQUEUE_FAILED
    assert await count_tasks(db) == 49


async def test_t57_equal_keys_in_one_batch_are_one_row(add: Add, db: AsyncConnection) -> None:
    (await add.send_async(0, 0)).unwrap()
    keyed = add.with_options(idempotency_key="once")
    sent = await asyncio.gather(*(keyed.send_async(1, 2) for _ in range(40)), keyed.send_async(3, 4))
    assert len({one.unwrap().task_id for one in sent[:40]}) == 1
    assert sent[40].unwrap_err().code is TaskSendErrorCode.PAYLOAD_MISMATCH
    assert await count_tasks(db) == 2


async def test_t54_the_same_id_twice_at_once_is_told_apart(app: Horsies, add: Add, db: AsyncConnection) -> None:
    (await add.send_async(0, 0)).unwrap()
    broker = app.get_broker()
    first, second = await asyncio.gather(
        broker.enqueue_async("add", [1], task_id="same"), broker.enqueue_async("add", [2], task_id="same")
    )
    assert first.unwrap() == "same"
    assert second.unwrap_err().code == "PAYLOAD_MISMATCH"
    assert await count_tasks(db) == 2


async def test_a_sender_that_gives_up_does_not_hurt_the_others(add: Add, db: AsyncConnection) -> None:
    (await add.send_async(0, 0)).unwrap()
    sends = [asyncio.create_task(add.send_async(n, n)) for n in range(20)]
    await asyncio.sleep(0)
    sends[5].cancel()
    done = await asyncio.gather(*sends, return_exceptions=True)
    assert all(isinstance(one, Ok) for n, one in enumerate(done) if n != 5)
