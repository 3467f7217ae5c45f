"""Claims of which a worker does not know (W-21): their statement was still under way when the worker looked for them,
or they could not be returned at once. Those that are RUNNING have no lease that would run out, and none of their code
has run: they must go back to the queue long before somebody takes them for stale and fails them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from horsies import TaskHandle
from horsies.core.store import tasks
from tests.e2e.test_worker_races import begun, insert, on_update
from tests.network_support import network
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

FIRST_CLAIM = "NEW.id = 't' AND OLD.status = 'PENDING' AND NEW.claim_seq = 1"
TASK = ("t", "pid", '{"name": "t"}', 50)


async def send(task: Any, *args: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args)).unwrap()
    return handle


async def asleep(rows: Rows) -> None:
    await eventually(lambda: rows.all("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))


def impatient(module: Any, stale_ms: int = 5_000, **more: Any) -> None:
    """Who runs without a sign of life is taken for dead soon."""
    limits = {"running_stale_threshold_ms": stale_ms, "claimed_stale_threshold_ms": stale_ms}
    recovery = module.app.config.recovery.model_copy(update=limits)
    settings = {"recovery": recovery, "claim_lease_ms": stale_ms, **more}
    module.app.config = module.app.config.model_copy(update=settings)


async def has_run_once(rows: Rows, traces: Path, timeout: float = 40) -> None:
    row = await rows.until("t", "COMPLETED", "FAILED", timeout=timeout)
    assert (row["status"], row["retry_count"]) == ("COMPLETED", 0)
    assert [attempt["outcome"] for attempt in await rows.attempts("t")] == ["COMPLETED"]
    assert len((traces / "t").read_text().splitlines()) == 1


async def test_w21_a_claim_that_commits_after_its_connection_broke_is_handed_back(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    """The worker has looked for it before that."""
    impatient(basic)
    await on_update(database_url, FIRST_CLAIM, "PERFORM pg_sleep(3); RETURN NEW;")
    async with network(database_url) as net, running_worker(basic.app, processes=1, dsn=net.url):
        await (await send(basic.noop)).get_async(timeout_ms=30_000)
        await insert(rows, TASK)
        await asleep(rows)
        net.cut()
        net.mend()
        await has_run_once(rows, traces)


@pytest.mark.slow("breaks connections and waits for their recovery")
async def test_w21_w53_a_worker_that_leaves_waits_for_a_claim_whose_connection_broke(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    impatient(basic)
    await on_update(database_url, FIRST_CLAIM, "PERFORM pg_sleep(3); RETURN NEW;")
    async with network(database_url) as net:
        async with running_worker(basic.app, processes=1, dsn=net.url) as worker:
            await (await send(basic.noop)).get_async(timeout_ms=30_000)
            await insert(rows, TASK)
            await asleep(rows)
            net.cut()
            net.mend()
            await eventually(lambda: worker._claimer.unknown._sessions, what="it knows of its lost session")
        assert await rows.status("t") == "PENDING"
    async with running_worker(basic.app, processes=1):
        await has_run_once(rows, traces)


@pytest.mark.slow("breaks connections and waits for their recovery")
async def test_w21_what_is_locked_when_it_is_to_be_handed_back_is_tried_again(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    """For longer than a worker waits for a lock."""
    impatient(basic, 20_000)
    await on_update(database_url, FIRST_CLAIM, "PERFORM pg_sleep(1.5); RETURN NEW;")
    async with (
        network(database_url) as net,
        running_worker(basic.app, processes=1, dsn=net.url),
        await psycopg.AsyncConnection.connect(database_url) as holder,
    ):
        await (await send(basic.noop)).get_async(timeout_ms=30_000)
        await insert(rows, TASK)
        await asleep(rows)
        net.cut()
        await rows.until("t", "RUNNING")
        await holder.execute("SELECT FROM horsies_tasks WHERE id = 't' FOR UPDATE")
        net.mend()
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        await eventually(lambda: rows.all(waits), what="the worker waits for the row")

        async def has_given_up() -> bool:
            return not await rows.all(waits)

        await eventually(has_given_up, 30, what="it gives up")
        await holder.commit()
        await has_run_once(rows, traces)


@pytest.mark.slow("breaks connections and waits for their recovery")
async def test_w21_l03_a_number_given_away_again_while_its_start_is_under_way_is_not_lost(
    basic: Any, rows: Rows, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is lost with a crash of the server, and made again, now RUNNING. The start of the first one finds it
    taken, and the task must not be forgotten with that."""
    impatient(basic, prefetch_buffer=1)
    gate, asked, start = asyncio.Event(), asyncio.Event(), tasks.start

    async def slow_start(conn: Any, *given: Any) -> set[str]:
        if any(claim.task_id == "t" for claim in given[2]):
            asked.set()
            await gate.wait()
        return await start(conn, *given)

    monkeypatch.setattr(tasks, "start", slow_start)
    async with running_worker(basic.app, processes=2) as worker:
        await send(basic.nap, 2.0, "a")
        await send(basic.nap, 3.0, "b")
        await begun(traces, "a")
        await begun(traces, "b")
        await insert(rows, TASK)
        await asyncio.wait_for(asked.wait(), 30)
        await eventually(lambda: len(worker._in_hand) == 1, 30, what="the others have ended")
        await rows.all(
            "UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE, claimed_at = NULL, claim_seq = 0,"
            " claimed_by_worker_id = NULL, claim_expires_at = NULL WHERE id = 't' RETURNING id"
        )
        worker._claimer.ring()
        await rows.until("t", "RUNNING")
        gate.set()
        await has_run_once(rows, traces)


async def test_w21b_a_task_that_finds_no_room_beside_reserved_places_starts_when_these_are_free(
    basic: Any, rows: Rows, database_url: str
) -> None:
    """A node that somebody had locked comes back while a claim, which brings nothing, has reserved the only child."""
    await on_update(database_url, "NEW.id = 'x' AND OLD.status = 'PENDING'", "PERFORM pg_sleep(1); RETURN NULL;")
    basic.app.config = basic.app.config.model_copy(update={"prefetch_buffer": 2, "claim_lease_ms": 5_000})
    spec = basic.app.workflow("one", [basic.noop.node()()], definition_key="one")
    lock = "SELECT FROM horsies_workflow_tasks WHERE workflow_id = %s FOR UPDATE"
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        handle = (await spec.start_async()).unwrap()
        await holder.execute(lock, [handle.workflow_id])
        async with running_worker(basic.app, processes=1):
            claimed = "SELECT 1 FROM horsies_tasks WHERE status = 'CLAIMED'"
            await eventually(lambda: rows.all(claimed), 30, what="the node is claimed")
            await insert(rows, ("x", "noop", "{}", 50))
            await asleep(rows)
            await holder.commit()
            assert (await handle.get_async(timeout_ms=10_000)).is_ok()
