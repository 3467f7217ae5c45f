"""Sends that wait at the same moment share a commit, and nothing else."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.app import Horsies
from horsies.core.models.tasks import TaskSendErrorCode, TaskSendPayload
from horsies.core.producer.enqueue import new_task_id
from horsies.core.producer.envelope import payload_for
from horsies.core.store.sends import Send
from horsies.core.types.result import Ok
from tests.app_support import Add, an_app, define_add
from tests.factories import count_tasks
from tests.services.test_send import somebody_waits_for_a_lock
from tests.support import eventually


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


async def a_key_that_is_held(db: AsyncConnection, url: str, key: str) -> AsyncConnection:
    """Whoever sends with this key waits until the connection is closed."""
    other = await AsyncConnection.connect(url)
    await other.execute(
        "INSERT INTO horsies_tasks (id, task_name, idempotency_key) VALUES (%s, 'add', %s)", [f"held {key}", key]
    )
    return other


@contextlib.contextmanager
def held_up(app: Horsies) -> Iterator[None]:
    """The background loop does nothing meanwhile."""
    gate, entered = threading.Event(), threading.Event()

    async def hold_up() -> None:
        entered.set()
        gate.wait(30)

    holding = threading.Thread(target=app.get_broker().bridge.run, args=(hold_up,))
    holding.start()
    try:
        assert entered.wait(10)
        yield
    finally:
        gate.set()
        holding.join()


async def test_a_send_that_is_awaited_alone_needs_no_other_thread(app: Horsies, add: Add, db: AsyncConnection) -> None:
    (await add.send_async(0, 0)).unwrap()
    with held_up(app):
        async with asyncio.timeout(10):
            (await add.send_async(1, 1)).unwrap()
            (await add.with_options(idempotency_key="k").send_async(2, 2)).unwrap()
            mismatch = (await add.with_options(idempotency_key="k").send_async(3, 3)).unwrap_err()
            assert mismatch.code is TaskSendErrorCode.PAYLOAD_MISMATCH
    assert await count_tasks(db) == 3


def test_a_send_that_blocks_alone_needs_no_other_thread(app: Horsies, add: Add) -> None:
    first = add.send(0, 0).unwrap()
    with held_up(app):
        sending = ThreadPoolExecutor(1).submit(add.send, 1, 1)
        second = sending.result(10).unwrap()
        third = add.send(2, 2).unwrap()
    assert len({first.task_id, second.task_id, third.task_id}) == 3


def test_a_lone_send_that_is_interrupted_costs_no_connection(database_url: str) -> None:
    with (
        an_app(database_url, postgres={"pool_size": 1, "max_overflow": 0}) as app,
        psycopg.connect(database_url) as other,
    ):
        add = define_add(app)
        add.send(0, 0).unwrap()
        other.execute(
            "INSERT INTO horsies_tasks (id, task_name, idempotency_key) VALUES ('held', %s, 'k')", [add.task_name]
        )
        interruption = threading.Timer(0.5, _thread.interrupt_main)
        interruption.start()
        with pytest.raises(KeyboardInterrupt):
            add.with_options(idempotency_key="k").send(1, 1)
        interruption.join()
        other.rollback()
        assert add.send(2, 2).is_ok()
        assert asyncio.run(add.send_async(3, 3)).is_ok()


async def test_t67_sends_on_many_loops_share_few_connections(database_url: str, db: AsyncConnection) -> None:
    with an_app(database_url, postgres={"pool_size": 1, "max_overflow": 0}) as app:
        add = define_add(app)

        async def send_and_look(n: int) -> None:
            for one in range(15):
                handle = (await add.send_async(n, one)).unwrap()
                if one % 5 == 0:
                    assert (await handle.info_async()).unwrap() is not None

        with ThreadPoolExecutor(8) as threads:
            done = [threads.submit(asyncio.run, send_and_look(n)) for n in range(8)]
            await asyncio.to_thread(lambda: [one.result(60) for one in done])
    assert await count_tasks(db) == 8 * 15


async def test_a_lone_send_that_is_cancelled_costs_no_connection(database_url: str, db: AsyncConnection) -> None:
    with an_app(database_url, postgres={"pool_size": 1, "max_overflow": 0}) as app:
        add = define_add(app)
        (await add.send_async(0, 0)).unwrap()
        other = await a_key_that_is_held(db, database_url, "k")
        for _ in range(3):
            waiting = asyncio.create_task(add.with_options(idempotency_key="k").send_async(1, 1))
            await eventually(lambda: somebody_waits_for_a_lock(db))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            (await add.send_async(2, 2)).unwrap()
        await other.close()
    assert await count_tasks(db) == 4


async def test_t67_a_loop_that_ends_in_the_middle_of_a_send_costs_no_connection(
    database_url: str, db: AsyncConnection
) -> None:
    with an_app(database_url, postgres={"pool_size": 1, "max_overflow": 0}) as app:
        add = define_add(app)
        (await add.send_async(0, 0)).unwrap()
        other = await a_key_that_is_held(db, database_url, "k")
        abandoned = asyncio.new_event_loop()
        sending = abandoned.create_task(add.with_options(idempotency_key="k").send_async(1, 1))
        running = threading.Thread(target=abandoned.run_forever)
        running.start()
        await eventually(lambda: somebody_waits_for_a_lock(db))
        abandoned.call_soon_threadsafe(abandoned.stop)
        running.join()
        sending._log_destroy_pending = False  # type: ignore[attr-defined]
        del sending
        abandoned.close()
        gc.collect()
        await other.close()
        (await asyncio.wait_for(add.send_async(2, 2), 20)).unwrap()


async def test_t11_a_broker_that_is_closed_during_a_lone_send_keeps_no_connection(
    app: Horsies, add: Add, db: AsyncConnection, database_url: str
) -> None:
    (await add.send_async(0, 0)).unwrap()
    other = await a_key_that_is_held(db, database_url, "k")
    await eventually(lambda: can_send_alone(app), what="the first send is over for its writer too")
    waiting = asyncio.create_task(add.with_options(idempotency_key="k").send_async(1, 1))
    await eventually(lambda: somebody_waits_for_a_lock(db))
    await app.get_broker().close_async()
    await other.close()
    (await waiting).unwrap()
    await eventually(lambda: nobody_is_connected(db))


def can_send_alone(app: Horsies) -> bool:
    hub = app.get_broker().bridge.peek()
    assert hub is not None
    with hub.writer._alone_with_a_connection() as conn:
        return conn is not None


async def nobody_is_connected(db: AsyncConnection) -> bool:
    found = await db.execute(
        "SELECT FROM pg_stat_activity WHERE application_name = 'horsies' AND datname = current_database()"
    )
    return await found.fetchone() is None


async def waiting_for_locks(db: AsyncConnection) -> int:
    found = await db.execute(
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return found.rowcount


async def test_a_send_that_comes_as_both_statements_end_is_not_forgotten(
    app: Horsies, db: AsyncConnection, database_url: str
) -> None:
    """Both answers are read in one turn of the loop, and a sender goes on before the lanes are known to have ended."""
    broker = app.get_broker()
    (await broker.ensure_schema_initialized()).unwrap()
    first, second = [payload_for("add", [1], idempotency_key=key).unwrap() for key in ("k", "l")]
    once_more = [payload_for("add", [2]).unwrap()]

    async def send_and_go_on(payload: TaskSendPayload) -> None:
        await broker.write(Send(new_task_id(), payload))
        if once_more:  # whoever comes first; the other has ended, and nobody follows
            await broker.write(Send(new_task_id(), once_more.pop()))

    holders = [await a_key_that_is_held(db, database_url, key) for key in ("k", "l")]
    sending = [asyncio.create_task(broker.bridge.call(partial(send_and_go_on, first)))]
    await eventually(partial(has_come_to, waiting_for_locks, db, 1))
    sending.append(asyncio.create_task(broker.bridge.call(partial(send_and_go_on, second))))
    await eventually(partial(has_come_to, waiting_for_locks, db, 2))
    with held_up(app):
        for holder in holders:
            await holder.close()
        await eventually(partial(has_come_to, busy, db, 0))
    async with asyncio.timeout(20):
        await asyncio.gather(*sending)
    assert await count_tasks(db) == 3


async def has_come_to(count: Callable[[AsyncConnection], Awaitable[int]], db: AsyncConnection, wanted: int) -> bool:
    return await count(db) == wanted


async def busy(db: AsyncConnection) -> int:
    found = await db.execute(
        "SELECT FROM pg_stat_activity WHERE application_name = 'horsies' AND datname = current_database()"
        " AND state <> 'idle'"
    )
    return found.rowcount
