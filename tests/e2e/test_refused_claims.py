"""A trigger that is not ours refuses the claim of some tasks: they hold up no other (L-19a)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from tests.factories import given_node, given_task, given_workflow
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

NOOP: dict[str, Any] = {"task_name": "noop", "args": "[]", "kwargs": "{}"}
REFUSE = """
    CREATE SEQUENCE refusals;
    GRANT USAGE ON SEQUENCE refusals TO PUBLIC;
    CREATE FUNCTION refuse() RETURNS trigger AS $$
    BEGIN
        PERFORM nextval('refusals');
        RAISE 'not with me' USING ERRCODE = '{code}';
    END $$ LANGUAGE plpgsql;
    CREATE TRIGGER refuse BEFORE UPDATE ON horsies_tasks
        FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse();
"""
EVERY_CLAIM = "OLD.status = 'PENDING' AND NEW.claimed"  # those that start the task too
CLAIMS = f"{EVERY_CLAIM} AND NEW.id LIKE 'refused%'"


async def refuse(db: AsyncConnection[Any], when: str, code: str = "23514") -> None:
    await db.execute(REFUSE.format(when=when, code=code).encode())


async def refusals(rows: Rows, count: int) -> bool:
    [row] = await rows.all("SELECT last_value FROM refusals")
    return bool(row["last_value"] >= count)


async def all_end(rows: Rows, ids: list[str], status: str = "COMPLETED") -> None:
    async def ended() -> bool:
        found = await rows.all("SELECT DISTINCT status FROM horsies_tasks WHERE id = ANY(%s)", ids)
        return [row["status"] for row in found] == [status]

    await eventually(ended, 60, what=f"{status} of {len(ids)} tasks")


@pytest.mark.parametrize(("code", "count"), [("23514", 1), ("P0001", 3)], ids=["one worker", "three workers"])
async def test_l19a_one_refused_claim_among_many_stops_no_queue(
    database_url: str, rows: Rows, traces: Path, code: str, count: int
) -> None:
    """It is the first in the queue."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await refuse(db, CLAIMS, code)
        odd = await given_task(db, id="refused", priority=1, **NOOP)
        healthy = [await given_task(db, **NOOP) for _ in range(200)]
    with ExitStack() as stack:
        workers = [stack.enter_context(WorkerProcess(database_url, "--processes", "2")) for _ in range(count)]
        await all_end(rows, healthy)
        for _ in range(20):
            if (await rows.task(odd))["status"] != "PENDING":
                break
            # Of several workers each may have seen only the refusal, and none what was accepted after it.
            async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
                more = [await given_task(db, **NOOP) for _ in range(20)]
            await all_end(rows, more)
            healthy += more
        await all_end(rows, [odd], "FAILED")
        said = "".join(worker.stop()[1] for worker in workers)
    row = await rows.task(odd)
    assert row["error_code"] == "ROW_SET_ASIDE"
    assert row["failed_reason"].startswith("the database refuses its claim: not with me")
    assert said.count("task set aside") == 1 and odd in said, said
    attempts = await rows.all("SELECT task_id FROM horsies_task_attempts")
    assert sorted(row["task_id"] for row in attempts) == sorted(healthy)


@pytest.mark.slow("waits for rows that are refused again and again")
async def test_l19a_a_claim_that_cannot_even_be_set_aside_is_skipped_and_told_once(
    database_url: str, rows: Rows, traces: Path
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await refuse(db, "NEW.id LIKE 'refused%'")
        odd = [await given_task(db, id=f"refused {number}", priority=1, **NOOP) for number in range(3)]
        healthy = [await given_task(db, **NOOP) for _ in range(50)]
        with WorkerProcess(database_url, "--processes", "1") as worker:
            await all_end(rows, healthy)
            later = [await given_task(db, **NOOP) for _ in range(50)]
            await all_end(rows, later)
            await db.execute("DROP TRIGGER refuse ON horsies_tasks")
            await all_end(rows, odd)
            code, said = worker.stop()
    assert code == 0 and "failed and will be retried" not in said
    assert said.count("cannot even be set aside") == 3, said


@pytest.mark.slow("waits for rows that are refused again and again")
async def test_l19a_a_trigger_that_refuses_every_claim_fails_nothing(
    database_url: str, rows: Rows, traces: Path
) -> None:
    """Somebody has stopped the work in this way: when that is over, everything runs."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await refuse(db, EVERY_CLAIM, "P0001")
        waiting = [await given_task(db, **NOOP) for _ in range(120)]
        with WorkerProcess(database_url, "--processes", "1") as worker:
            await eventually(lambda: refusals(rows, 200), what="refusals")
            await db.execute("DROP TRIGGER refuse ON horsies_tasks")
            await all_end(rows, waiting)
            code, said = worker.stop()
    assert code == 0, said


@pytest.mark.slow("waits for rows that are refused again and again")
async def test_l32_a_waiting_task_that_is_set_aside_advances_its_workflow_at_once(
    database_url: str, rows: Rows, traces: Path
) -> None:
    """Long before reconciliation would find it."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await refuse(db, CLAIMS)
        flow = await given_workflow(db, status="RUNNING", open_nodes=1, started_at="now")
        await given_task(db, id="refused", workflow_id=flow, priority=1, **NOOP)
        await given_node(db, flow, status="ENQUEUED", task_id="refused", task_kwargs="{}")
        healthy = [await given_task(db, **NOOP) for _ in range(5)]
    with WorkerProcess(database_url, "--processes", "1") as worker:
        await all_end(rows, healthy)

        async def ended() -> bool:
            [row] = await rows.all("SELECT status FROM horsies_workflows WHERE id = %s", flow)
            return bool(row["status"] == "FAILED")

        await eventually(ended, 60, what="the end of the workflow")
        code, said = worker.stop()
    assert code == 0 and "nobody had advanced the workflow" not in said, said


@pytest.mark.slow("waits for rows that are refused again and again")
async def test_l06_a_lapsed_claim_that_is_refused_holds_up_no_other(
    database_url: str, rows: Rows, traces: Path
) -> None:
    """The reaper returns lapsed claims to the queue, each by itself."""
    gone = {"claimed_by_worker_id": "gone", "claimed_at": "2020-01-01", "claim_expires_at": "2020-01-01"}
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await given_task(db, id="refused", status=TaskStatus.CLAIMED, **NOOP, **gone)
        healthy = [await given_task(db, status=TaskStatus.CLAIMED, **NOOP, **gone) for _ in range(5)]
        healthy += [await given_task(db, **NOOP) for _ in range(5)]
        await refuse(db, CLAIMS)
    with WorkerProcess(database_url, "--processes", "1") as worker:
        await all_end(rows, healthy)
        code, said = worker.stop()
    assert code == 0 and "failed and will be retried" not in said, said
