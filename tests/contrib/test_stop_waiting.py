"""A process that stops waits for nothing any longer (T-61, X-21): calls end with a value, and the tasks go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from horsies import Horsies, RetrievalCode
from tests.app_support import an_app, define_add
from tests.network_support import network
from tests.support import eventually

INTERRUPTED = RetrievalCode.WAIT_INTERRUPTED


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    with an_app(database_url) as made:
        yield made


async def test_t61_t62_x21_every_wait_ends_and_later_ones_look_once(app: Horsies) -> None:
    add = define_add(app)
    broker = app.get_broker()
    ended, waited = [(await add.send_async(number)).unwrap() for number in (1, 2)]
    await app.testing.drain_async(max_tasks=1)
    waits = [asyncio.create_task(waited.get_async()), asyncio.create_task(asyncio.to_thread(waited.get))]
    await asyncio.sleep(0.1)
    broker.stop_waiting()
    for wait in waits:
        assert (await asyncio.wait_for(wait, 15)).err_value.error_code is INTERRUPTED
    late = await asyncio.wait_for(waited.get_async(), 15)
    assert late.err_value.error_code is INTERRUPTED and "the task goes on" in str(late.err_value.message)
    assert (await app.get_result_async(waited.task_id)).unwrap().err_value.error_code is INTERRUPTED
    assert (await ended.get_async()).unwrap() == 1, "what is there is not withheld"

    await broker.close_async()  # the server starts again, in the same process
    waiting = asyncio.create_task(waited.get_async(30_000))
    await app.testing.drain_async()
    assert (await waiting).unwrap() == 2, "nothing was kept, neither by the handle nor by the broker"


async def test_f84_x21_waits_for_workflows_end_too(app: Horsies) -> None:
    node = define_add(app).node(node_id="n")(a=1)
    handle = app.workflow("one", [node], output=node, definition_key="one").start().unwrap()
    waiting = asyncio.create_task(handle.get_async())
    await asyncio.sleep(0.1)
    app.get_broker().stop_waiting()
    result = await asyncio.wait_for(waiting, 15)
    assert result.err_value.error_code is INTERRUPTED and "the workflow goes on" in str(result.err_value.message)


async def test_t61_x21_so_does_the_first_wait_of_a_process_that_stops(app: Horsies) -> None:
    add = define_add(app)
    node = add.node(node_id="n")(a=1)
    workflow = app.workflow("one", [node], output=node, definition_key="one").start().unwrap()
    task = (await add.send_async(1)).unwrap()
    app.get_broker().stop_waiting()
    for first in (workflow.get_async(), task.get_async()):
        assert (await asyncio.wait_for(first, 15)).err_value.error_code is INTERRUPTED


async def test_p50_x21_a_watch_ends_also_while_the_database_is_away(database_url: str) -> None:
    seen: list[str] = []
    async with network(database_url) as line:
        with an_app(line.url) as app:
            handle = (await define_add(app).send_async(1)).unwrap()

            async def watch() -> None:
                async for info in handle.watch_async():
                    seen.append(info.status.value)

            watching = asyncio.create_task(watch())
            await eventually(lambda: seen)
            line.cut()
            await asyncio.sleep(2)  # it tries again and again now
            assert not watching.done()
            app.get_broker().stop_waiting()
            await asyncio.wait_for(watching, 15)
            line.mend()
    assert seen == ["PENDING"], "a state that is no end"


def test_x21_there_may_be_nothing_to_stop(app: Horsies) -> None:
    app.get_broker().stop_waiting()  # nothing was opened yet
    assert not app.get_broker().has_stopped_waiting
    assert app.get_broker().open().is_ok()
    app.get_broker().close()
    app.get_broker().stop_waiting()
    with psycopg.connect(app.config.broker.dsn()) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)
