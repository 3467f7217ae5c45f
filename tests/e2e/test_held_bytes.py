"""A worker keeps a bounded number of bytes in its own process, whatever its tasks take and return (W-25b)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from horsies.core import events
from horsies.core.worker import startup
from horsies.core.worker.pace import MAX_FED
from horsies.core.worker.service import Worker
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

KB = 1_000
LIMIT = 1_000 * KB
SIZE = 100 * KB


def kept(worker: Worker) -> int:
    """Bytes of the arguments and results that lie in this process now."""
    arguments = sum(len(held.row.args or "") + len(held.row.kwargs or "") for held in worker._in_hand)
    return arguments + sum(len(getattr(ending.move, "result", "")) for ending in worker._finalizer._endings)


async def run_short_tasks(basic: Any) -> None:
    """So many that the worker has good reason to run far ahead."""
    handles = (await basic.length.send_many_async([basic.length.prepare("x") for _ in range(600)])).unwrap()
    for handle in handles:
        assert (await handle.get_async(timeout_ms=60_000)).ok == 1
    handles = (await basic.big.send_many_async([basic.big.prepare(1) for _ in range(600)])).unwrap()
    for handle in handles:
        assert (await handle.get_async(timeout_ms=60_000)).ok


async def test_w25b_claims_stop_when_the_arguments_of_waiting_tasks_are_too_large(basic: Any, rows: Rows) -> None:
    most = 0

    def look(_name: str, facts: Mapping[str, Any]) -> None:
        nonlocal most
        most = max(most, kept(worker) + sum(row.size for row in facts.get("rows", ())))

    async with running_worker(basic.app, processes=2, max_held_bytes=LIMIT) as worker:
        await run_short_tasks(basic)
        unsubscribe = events.subscribe(look)
        calls = [basic.length.prepare("x" * SIZE) for _ in range(300)]
        for handle in (await basic.length.send_many_async(calls)).unwrap():
            assert (await handle.get_async(timeout_ms=120_000)).ok == SIZE
        unsubscribe()
        # The sender may know of the last result before the worker has read the answer to its own statement.
        await eventually(lambda: worker._in_hand.bytes == worker._in_hand.result_bytes == 0, what="nothing is kept")
    assert SIZE < most <= LIMIT + 2 * SIZE


@pytest.mark.slow("moves megabytes of arguments and results")
async def test_w25b_a_task_larger_than_the_limit_runs_too(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app, processes=2, max_held_bytes=1):
        handles = [(await basic.length.send_async("x" * SIZE)).unwrap() for _ in range(5)]
        handles += [(await basic.big.send_async(SIZE)).unwrap() for _ in range(5)]
        for handle in handles:
            assert (await handle.get_async(timeout_ms=60_000)).ok


@pytest.mark.slow("moves megabytes of arguments and results")
async def test_w25b_children_get_nothing_while_too_many_results_wait_to_be_written(
    basic: Any, rows: Rows, database_url: str
) -> None:
    async with running_worker(basic.app, processes=2, max_held_bytes=LIMIT) as worker:
        await run_short_tasks(basic)
        async with await psycopg.AsyncConnection.connect(database_url) as db:
            await db.execute("LOCK TABLE horsies_task_attempts IN EXCLUSIVE MODE")  # no end can be written
            (await basic.big.send_many_async([basic.big.prepare(SIZE) for _ in range(300)])).unwrap()
            in_hand, dispatcher = worker._in_hand, worker._dispatcher
            await eventually(lambda: dispatcher.is_held_up, 60, what="too many results")
            # What lies inside the children may still come, if they are faster than the word that wants it back.
            running = worker._children.children
            await eventually(lambda: not any(child.fed for child in running), 60, what="idle children")
            assert LIMIT <= in_hand.result_bytes <= LIMIT + len(running) * (MAX_FED + 2) * SIZE < 300 * SIZE
            await db.rollback()

        async def all_completed() -> bool:
            return not await rows.all("SELECT id FROM horsies_tasks WHERE status <> 'COMPLETED' LIMIT 1")

        await eventually(all_completed, 60, what="the end of all tasks")
        assert in_hand.bytes == in_hand.result_bytes == 0


# No result of this size can be written while somebody has the lock; everything else can.
STUCK = """
CREATE FUNCTION stick() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(25); RETURN NEW;
END $$;
CREATE TRIGGER stick BEFORE UPDATE ON horsies_tasks FOR EACH ROW
WHEN (NEW.status = 'COMPLETED' AND length(NEW.result) > 10000) EXECUTE FUNCTION stick();
SELECT pg_advisory_lock(25)
"""


@pytest.mark.slow("moves megabytes of arguments and results")
async def test_w25b_what_waits_in_a_worker_that_is_held_up_goes_to_others(
    basic: Any, rows: Rows, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One result is so large, and cannot be written: what this worker has claimed and started ahead must not wait."""
    monkeypatch.setattr(startup, "LOCK_TIMEOUT_MS", 200)
    async with running_worker(basic.app, processes=2, max_held_bytes=SIZE // 2) as worker:
        await run_short_tasks(basic)
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
            await db.execute(STUCK)
            calls = [basic.big.prepare(SIZE if place % 100 == 50 else 1) for place in range(300)]
            handles = (await basic.big.send_many_async(calls)).unwrap()
            stuck, others = handles[50::100], [handle for place, handle in enumerate(handles) if place % 100 != 50]
            await eventually(lambda: worker._dispatcher.is_held_up, 60, what="too many results")
            async with running_worker(basic.app, processes=1):
                for handle in others:
                    assert (await handle.get_async(timeout_ms=30_000)).ok == "x"
                assert worker._dispatcher.is_held_up
                assert {await rows.status(handle.task_id) for handle in stuck} == {"RUNNING"}
                await db.execute("SELECT pg_advisory_unlock(25)")
                for handle in stuck:
                    assert (await handle.get_async(timeout_ms=60_000)).ok
        again = (await basic.big.send_async(1)).unwrap()
        assert (await again.get_async(timeout_ms=60_000)).ok
        await eventually(lambda: not len(worker._in_hand), what="nothing is left")
        # The sender may know of the last result before the worker has read the answer to its own statement.
        await eventually(lambda: worker._in_hand.bytes == worker._in_hand.result_bytes == 0, what="nothing is kept")


REFUSED = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON horsies_tasks FOR EACH ROW
WHEN (OLD.task_name = 'big' AND NEW.status <> 'RUNNING' AND OLD.status = 'RUNNING') EXECUTE FUNCTION refuse()
"""


@pytest.mark.slow("moves megabytes of arguments and results")
async def test_w25b_a_result_that_the_database_has_refused_takes_up_no_room(basic: Any, database_url: str) -> None:
    """It is gone. Only a short record of the refusal waits, perhaps for ever."""
    async with running_worker(basic.app, processes=1, max_held_bytes=SIZE // 2) as worker:
        assert (await (await basic.add.send_async(1, 1)).unwrap().get_async(timeout_ms=30_000)).ok == 2
        in_hand = worker._in_hand
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
            await db.execute(REFUSED)
            refused = (await basic.big.send_async(SIZE)).unwrap()
            await eventually(lambda: worker._finalizer.unwritable, 30, what="nothing about it can be written")
            assert (await (await basic.add.send_async(1, 2)).unwrap().get_async(timeout_ms=20_000)).ok == 3
            assert not worker._dispatcher.is_held_up
            assert 0 <= in_hand.result_bytes <= in_hand.bytes < KB
            await db.execute("DROP TRIGGER refuse ON horsies_tasks")
            assert (await refused.get_async(timeout_ms=60_000)).is_err()
        await eventually(lambda: not len(in_hand), what="nothing is left")
        assert in_hand.bytes == in_hand.result_bytes == 0
