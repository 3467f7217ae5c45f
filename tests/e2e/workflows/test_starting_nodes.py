"""The start of a workflow's task: its node moves with it, its workflow is asked before, and whatever goes wrong there
neither runs a task that must not run nor touches the tasks of nobody's workflow.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import Horsies
from horsies.core.worker import start
from tests.e2e.workflows.rows import flow_status, given_flow, node_of, nodes_locked
from tests.factories import given_task, task_row
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e


def ran(traces: Path, name: str) -> int:
    path = traces / name
    return len(path.read_text().splitlines()) if path.exists() else 0


async def test_l09_f21_the_node_becomes_running_in_the_transaction_of_its_task(
    basic: Any, rows: Rows, db: AsyncConnection[Any]
) -> None:
    flow, long, short = await given_flow(db, ("nap", {"seconds": 0.5}), ("noop", {}))
    plain = await given_task(db, task_name="noop")
    async with running_worker(basic.app, processes=2):
        await rows.until(long, "RUNNING")
        node = await node_of(db, long)
        assert node["status"] == "RUNNING"
        for task_id in (long, short, plain):
            await rows.until(task_id, "COMPLETED")
        await eventually(lambda: is_status(db, flow, "COMPLETED"))
    # now() is the same for all that one transaction writes.
    for task_id in (long, short):
        assert (await node_of(db, task_id))["started_at"] == (await task_row(db, task_id))["started_at"]


async def test_l25_what_was_claimed_when_its_workflow_stopped_is_not_run(
    basic: Any,
    rows: Rows,
    db: AsyncConnection[Any],
    database_url: str,
    traces: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paused: back to the queue; cancelled: CANCELLED; and the deadline goes before both."""
    monkeypatch.setattr(start, "NODE_PATIENCE_S", 60.0)  # nothing goes back before the test has seen it claimed
    paused, of_paused = await given_flow(db, ("pid", {"name": "paused"}))
    cancelled, of_cancelled = await given_flow(db, ("pid", {"name": "cancelled"}))
    late, of_late = await given_flow(db, ("pid", {"name": "late"}), good_until="tomorrow")
    tasks = (of_paused, of_cancelled, of_late)
    with caplog.at_level(logging.INFO, "horsies.worker"):
        async with nodes_locked(database_url, *tasks) as holder, running_worker(basic.app, processes=3):
            for task_id in tasks:
                await rows.until(task_id, "CLAIMED")
            for flow, status in ((paused, "PAUSED"), (late, "PAUSED"), (cancelled, "CANCELLED")):
                await db.execute("UPDATE horsies_workflows SET status = %s WHERE id = %s", [status, flow])
            await db.execute("UPDATE horsies_tasks SET good_until = now() WHERE id = %s", [of_late])
            await holder.commit()
            await rows.until(of_paused, "PENDING")
            await rows.until(of_cancelled, "CANCELLED")
            await rows.until(of_late, "EXPIRED")
            # A paused one stays where it is, and runs when its workflow does.
            assert (await node_of(db, of_paused))["status"] == "ENQUEUED"
            assert [ran(traces, name) for name in ("paused", "cancelled", "late")] == [0, 0, 0]
            await db.execute("UPDATE horsies_workflows SET status = 'RUNNING' WHERE id = %s", [paused])
            await rows.until(of_paused, "COMPLETED")
            await eventually(lambda: is_status(db, paused, "COMPLETED"))
            await eventually(lambda: is_node(db, of_cancelled, "FAILED"), what="the end of the cancelled node")
            await eventually(lambda: is_node(db, of_late, "FAILED"), what="the end of the expired node")
    for task_id in (of_cancelled, of_late):  # L-26: no attempt
        assert await rows.attempts(task_id) == []
    assert (await node_of(db, of_cancelled))["error_code"] == "TASK_CANCELLED"
    assert (await node_of(db, of_late))["error_code"] == "TASK_EXPIRED"
    stopped = [record.__dict__["horsies"]["task_id"] for record in caplog.records if "WORKFLOW_STOPPED" in record.msg]
    assert sorted(stopped) == sorted([of_paused, of_cancelled])


async def test_l25_a_node_that_somebody_keeps_locked_holds_up_nobody_else(
    basic: Any, rows: Rows, db: AsyncConnection[Any], database_url: str, traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, stuck, free = await given_flow(db, ("pid", {"name": "stuck"}), ("pid", {"name": "free"}))
    async with nodes_locked(database_url, stuck) as holder, running_worker(basic.app, processes=2):
        plain = await given_task(db, task_name="noop")
        await rows.until(free, "COMPLETED")
        await rows.until(plain, "COMPLETED")
        assert (await rows.until(stuck, "CLAIMED"))["claim_seq"] == 1
        # After a while it goes back to the queue, so that another worker can try.
        await eventually(lambda: "WORKFLOW_CHECK_FAILED" in caplog.text)
        await eventually(lambda: is_claimed_again(rows, stuck))
        assert ran(traces, "stuck") == 0
        await holder.commit()
        await rows.until(stuck, "COMPLETED")
    assert ran(traces, "stuck") == 1 and len(await rows.attempts(stuck)) == 1


async def test_l25_a_check_that_fails_hands_back_and_plain_tasks_know_nothing_of_it(
    basic: Any, rows: Rows, db: AsyncConnection[Any], traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the table of nodes out of reach every statement that looks there fails."""
    _, task = await given_flow(db, ("pid", {"name": "once"}))
    await db.execute("ALTER TABLE horsies_workflow_tasks RENAME TO away")
    plain = [await given_task(db, task_name="noop") for _ in range(20)]
    async with running_worker(basic.app, processes=2):
        for task_id in plain:
            await rows.until(task_id, "COMPLETED")
        assert [(await rows.task(task_id))["claim_seq"] for task_id in plain] == [1] * 20
        await eventually(lambda: "WORKFLOW_CHECK_FAILED" in caplog.text)
        assert ran(traces, "once") == 0
        await db.execute("ALTER TABLE away RENAME TO horsies_workflow_tasks")
        await rows.until(task, "COMPLETED")
    assert ran(traces, "once") == 1 and len(await rows.attempts(task)) == 1


async def test_l27_a_start_that_breaks_at_the_node_is_handed_back_and_runs_once(
    basic: Any, rows: Rows, db: AsyncConnection[Any], traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session ends after the task has been made RUNNING, before that is committed."""
    await db.execute("CREATE SEQUENCE misfires")
    await db.execute(
        "CREATE FUNCTION misfire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('misfires') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); END IF;"
        " RETURN NEW; END $$"
    )
    await db.execute(
        "CREATE TRIGGER misfire BEFORE UPDATE ON horsies_workflow_tasks FOR EACH ROW"
        " WHEN (NEW.status = 'RUNNING') EXECUTE FUNCTION misfire()"
    )
    flow, task = await given_flow(db, ("pid", {"name": "once"}))
    async with running_worker(basic.app):
        await eventually(lambda: is_status(db, flow, "COMPLETED"))
    assert "OWNERSHIP_UNCONFIRMED" in caplog.text
    row = await task_row(db, task)
    assert (row["status"], row["claim_seq"], row["retry_count"]) == ("COMPLETED", 2, 0)
    assert ran(traces, "once") == 1 and len(await rows.attempts(task)) == 1


async def test_d63_a_start_has_no_task_before_it_has_the_node(
    basic: Any, rows: Rows, db: AsyncConnection[Any], database_url: str
) -> None:
    """Whoever has the node may want the task next: a start that held it and waited for the node would close a ring."""
    flow, task = await given_flow(db, ("noop", {}))
    async with nodes_locked(database_url, task) as holder, running_worker(basic.app):
        await rows.until(task, "CLAIMED")
        await holder.execute("SET LOCAL lock_timeout = '300ms'")
        for _ in range(20):  # a second in all: the worker tries to start it again and again
            async with holder.transaction(force_rollback=True):
                await holder.execute("SELECT FROM horsies_tasks WHERE id = %s FOR UPDATE", [task])
            await asyncio.sleep(0.05)
        await holder.commit()
        await eventually(lambda: is_status(db, flow, "COMPLETED"))


async def is_status(db: AsyncConnection[Any], workflow_id: str, status: str) -> bool:
    return await flow_status(db, workflow_id) == status


async def is_node(db: AsyncConnection[Any], task_id: str, status: str) -> bool:
    return bool((await node_of(db, task_id))["status"] == status)


async def is_claimed_again(rows: Rows, task_id: str) -> bool:
    row = await rows.task(task_id)
    return row["status"] == "CLAIMED" and row["claim_seq"] > 1


STOP_AND_BREAK = """
    CREATE SEQUENCE breaks;
    CREATE FUNCTION stop_and_break() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.status = 'CLAIMED' THEN
            UPDATE horsies_workflows SET status = 'CANCELLED' WHERE id = NEW.workflow_id;
        ELSIF nextval('breaks') = 1 THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
            PERFORM pg_sleep(5);
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER stop_and_break BEFORE UPDATE ON horsies_tasks FOR EACH ROW
        WHEN (NEW.workflow_id IS NOT NULL AND NEW.status IN ('CLAIMED', 'CANCELLED')) EXECUTE FUNCTION stop_and_break();
"""


async def test_l25_a_connection_lost_while_a_stopped_task_is_cancelled_keeps_nobody_behind_it(
    basic: Any, rows: Rows, db: AsyncConnection[Any], database_url: str
) -> None:
    """Its workflow is cancelled after the claim, and its own cancellation loses the connection. The task behind it,
    which is claimed and waits for the only child, starts all the same."""
    await db.execute(STOP_AND_BREAK)
    _, stopped = await given_flow(db, ("noop", {}))
    behind = await given_task(db, task_name="noop", args="[]", kwargs="{}")
    config = basic.app.config.model_copy(update={"prefetch_buffer": 1, "claim_lease_ms": 60_000})
    async with running_worker(Horsies(config), processes=1):
        await rows.until(behind, "COMPLETED", timeout=30)
    [found] = await rows.all("SELECT is_called FROM breaks")
    assert found["is_called"] and (await rows.task(stopped))["status"] in ("PENDING", "CANCELLED")


async def test_w41_a_task_that_could_not_start_does_not_count_for_its_child(
    basic: Any, rows: Rows, db: AsyncConnection[Any], database_url: str, traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its node is locked, so it is placed and taken back dozens of times; its child is not replaced for that. It stands
    first in the queue, and lets the other one pass."""
    _, stuck, first = await given_flow(db, ("pid", {"name": "stuck"}), ("pid", {"name": "first"}))
    await db.execute("UPDATE horsies_tasks SET enqueued_at = enqueued_at - interval '1 min' WHERE id = %s", [stuck])
    async with (
        nodes_locked(database_url, stuck) as holder,
        running_worker(basic.app, processes=1, max_tasks_per_child=10),
    ):
        await rows.until(first, "COMPLETED")
        await eventually(lambda: "WORKFLOW_CHECK_FAILED" in caplog.text)
        await holder.commit()
        await rows.until(stuck, "COMPLETED")
    assert (traces / "first").read_text() == (traces / "stuck").read_text()
