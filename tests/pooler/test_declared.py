"""Every part of horsies through a real PgBouncer: declared with a session URL, declared alone, and in session mode."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy
from psycopg.sql import SQL, Identifier

from horsies import Horsies
from horsies.core.producer.bulk import PART
from tests.e2e.cli_support import Started, run
from tests.pooler.conftest import Route, opened, routed
from tests.pooler.support import POOLED_APP, ROOT, three_steps
from tests.support import eventually, eventually_sync


def ids_of(app: Horsies, count: int) -> list[str]:
    return [handle.task_id for handle in app.tasks["add"].send_many([(n, n) for n in range(count)]).unwrap()]


async def test_o01_tasks_are_sent_and_run_and_their_results_read(route: Route, app: Horsies) -> None:
    add = app.tasks["add"]
    with route.worker("--processes", "2"), ThreadPoolExecutor(4) as threads:
        single = [h.unwrap() for h in threads.map(lambda n: add.send(n, 1), range(100))]
        many = add.send_many([(n, 2) for n in range(200)]).unwrap()
        expected = [n + 1 for n in range(100)] + [n + 2 for n in range(200)]
        for handle, sum_ in zip([*single, *many], expected, strict=True):
            assert (await handle.get_async(timeout_ms=30_000)).unwrap() == sum_
        assert {"horsies", "horsies worker"} <= route.bouncer.client_names()
    if route.name != "session mode":
        assert await route.bouncer.session_state() == []


async def test_o01_thousands_of_tasks_are_sent_at_once(route: Route, app: Horsies) -> None:
    ids = ids_of(app, PART + 7)
    rows = await route.rows.all("SELECT id, status, xmin::text FROM horsies_tasks ORDER BY enqueued_at, id")
    assert [row["id"] for row in rows] == ids
    assert {row["status"] for row in rows} == {"PENDING"} and len({row["xmin"] for row in rows}) == 1
    if route.name != "session mode":
        assert await route.bouncer.session_state() == []


async def test_o01_dates_are_read_whatever_the_style_of_the_database(route: Route, app: Horsies) -> None:
    async with await psycopg.AsyncConnection.connect(route.direct_url, autocommit=True) as db:
        await db.execute(SQL("ALTER DATABASE {} SET datestyle = 'German'").format(Identifier(db.info.dbname)))
    with route.worker("--processes", "2") as worker:
        handles = app.tasks["add"].send_many([(n, 1) for n in range(50)]).unwrap()
        for n, handle in enumerate(handles):
            assert (await handle.get_async(timeout_ms=30_000)).unwrap() == n + 1
            assert (await handle.info_async()).unwrap().completed_at is not None
        assert worker.stop()[0] == 0


def test_o01_a_workflow_advances(route: Route, app: Horsies) -> None:
    with route.worker("--processes", "1"):
        handle = three_steps(app).start().unwrap()
        assert handle.get(timeout_ms=30_000).ok == 113


def test_o01_a_killed_worker_is_recovered(route: Route, app: Horsies) -> None:
    with route.worker("--processes", "1") as first:
        handle = app.tasks["nap"].send(2.5).unwrap()
        asyncio.run(route.rows.until(handle.task_id, "RUNNING"))
        first.process.send_signal(signal.SIGKILL)
        with route.worker("--processes", "1"):
            assert handle.get(timeout_ms=45_000).is_ok()
    outcomes = [row["outcome"] for row in asyncio.run(route.rows.attempts(handle.task_id))]
    assert outcomes == ["WORKER_FAILURE", "COMPLETED"]


def test_o01_the_scheduler_fires(route: Route) -> None:
    with Started("scheduler", POOLED_APP, cwd=ROOT, **route.env, WITH_SCHEDULE="1") as scheduler:
        scheduler.until_it_says("scheduler ready")
        eventually_sync(lambda: len(asyncio.run(route.rows.all("SELECT id FROM horsies_tasks"))) >= 2)


def test_o01_commands_see_and_change_tasks(route: Route, app: Horsies) -> None:
    first, second = ids_of(app, 2)

    def horsies(*args: str) -> str:
        done = run(*args, cwd=ROOT, **route.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(horsies("queues", POOLED_APP, "--json"))
    assert first in horsies("tasks", POOLED_APP)
    assert first in horsies("task", POOLED_APP, first)
    horsies("explain", POOLED_APP, first)
    horsies("cancel", POOLED_APP, second)
    assert asyncio.run(route.rows.status(second)) == "CANCELLED"
    horsies("init-db", POOLED_APP)
    horsies("workers", POOLED_APP)
    allowed = () if route.has_sessions else ("--allow", "HRS-219")
    assert horsies("check", POOLED_APP, "--live", *allowed).startswith("ok: ")


def test_o01_a_schema_is_installed_through_the_pooler(alone: Route) -> None:
    with psycopg.connect(alone.direct_url, autocommit=True) as conn:
        conn.execute("DROP SCHEMA public CASCADE")
        conn.execute("CREATE SCHEMA public")
    done = run("init-db", POOLED_APP, cwd=ROOT, **alone.env)
    assert done.returncode == 0, done.stderr
    assert asyncio.run(alone.rows.all("SELECT id FROM horsies_tasks")) == []


@pytest.fixture
def engine(route: Route) -> Iterator[sqlalchemy.Engine]:
    url = route.bouncer.url.replace("postgresql://", "postgresql+psycopg://")
    made = sqlalchemy.create_engine(url, connect_args={"prepare_threshold": None})
    yield made
    made.dispose()


async def test_o01_sends_belong_to_the_transaction_of_the_caller(
    route: Route, app: Horsies, engine: sqlalchemy.Engine
) -> None:
    add = app.tasks["add"]
    url = route.bouncer.url
    with psycopg.connect(url, prepare_threshold=None) as conn:
        for n in range(10):  # often enough for the driver to prepare a statement, if it may
            kept = add.with_options(connection=conn).send(1, n).unwrap()
            conn.commit()
            add.with_options(connection=conn).send(2, n).unwrap()
            conn.rollback()
    async with await psycopg.AsyncConnection.connect(url, prepare_threshold=None) as other, other.transaction():
        awaited = (await add.with_options(connection=other).send_async(3, 3)).unwrap()
    with engine.begin() as connection:
        mapped = add.with_options(connection=connection).send_many([(4, 4), (5, 5)]).unwrap()
    with route.worker("--processes", "1"):
        for handle in (kept, awaited, *mapped):
            assert (await handle.get_async(timeout_ms=30_000)).is_ok()
    assert len(await route.rows.all("SELECT id FROM horsies_tasks")) == 13


async def test_o01_a_locked_row_holds_up_only_its_own_task(route: Route, app: Horsies) -> None:
    with route.worker("--processes", "2"):
        held = app.tasks["nap"].send(0.5).unwrap()
        await route.rows.until(held.task_id, "RUNNING")
        async with await psycopg.AsyncConnection.connect(route.direct_url) as somebody:
            await somebody.execute("SELECT 1 FROM horsies_tasks WHERE id = %s FOR UPDATE", [held.task_id])
            # Both children must have ended tasks while the row is locked: the end of the first one waits.
            for handle in app.tasks["nap"].send_many([(0.4,)] * 6).unwrap():
                assert (await handle.get_async(timeout_ms=30_000)).is_ok()
            assert await route.rows.status(held.task_id) == "RUNNING"
            await somebody.rollback()
        assert (await held.get_async(timeout_ms=30_000)).is_ok()


async def test_o01_a_cancelled_task_is_stopped(route: Route, app: Horsies) -> None:
    with route.worker("--processes", "1"):
        handle = app.tasks["nap"].send(60.0).unwrap()
        await route.rows.until(handle.task_id, "RUNNING")
        assert app.get_broker().cancel_task(handle.task_id, include_running=True).is_ok()
        # The only child is free again.
        assert (await app.tasks["add"].send(1, 1).unwrap().get_async(timeout_ms=30_000)).ok == 2


async def test_o01_few_connections_of_the_pooler_suffice(database_url: str) -> None:
    with (route := routed("alone", database_url, default_pool_size=3)).bouncer:
        for app in opened(route):
            with route.worker("--processes", "2"):
                handles = app.tasks["add"].send_many([(n, 1) for n in range(300)]).unwrap()
                flow = three_steps(app).start().unwrap()
                for handle in handles:
                    assert (await handle.get_async(timeout_ms=60_000)).is_ok()
                assert (await flow.get_async(timeout_ms=30_000)).ok == 113
            assert await eventually(lambda: len(route.bouncer.show("servers")) <= 3)


async def test_o01_a_pooler_that_restarts_costs_time_and_no_task(route: Route, app: Horsies) -> None:
    nap = app.tasks["nap"]
    with route.worker("--processes", "2"):
        handles = nap.send_many([(0.2,)] * 20).unwrap()
        assert (await handles[0].get_async(timeout_ms=30_000)).is_ok()
        route.bouncer.restart()
        for handle in handles:
            assert (await handle.get_async(timeout_ms=60_000)).is_ok()
        assert (await nap.send(0.1).unwrap().get_async(timeout_ms=30_000)).is_ok()
    outcomes = await route.rows.all("SELECT outcome FROM horsies_task_attempts")
    assert [row["outcome"] for row in outcomes] == ["COMPLETED"] * 21
