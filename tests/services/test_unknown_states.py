"""A word that nobody knows where a state, an outcome or a kind should be: the constraints refuse it, and where somebody
has dropped these, it is shown as it is, stops no pass, and fails no listing (D-13, L-19a, M-45)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db import Pool
from horsies.core.types.status import TaskStatus
from horsies.core.workflows.handle import WorkflowHandle
from tests.factories import given_attempt, given_heartbeat, given_node, given_task, given_worker, given_workflow
from tests.odd_rows_support import drop_constraints
from tests.recovery_support import LONG_AGO
from tests.services.passes import PENDING, RUNNING, STALE, Db, Worker, complaints, ends, healthy, healthy_flow

WORDS = (
    ("horsies_tasks", "status"),
    ("horsies_workflows", "status"),
    ("horsies_workflows", "on_error"),
    ("horsies_workflow_tasks", "status"),
    ("horsies_workflow_tasks", "node_type"),
    ("horsies_workflow_tasks", "join_type"),
    ("horsies_task_attempts", "outcome"),
    ("horsies_heartbeats", "role"),
)
ODD = "BOGUS"


async def given_rows(db: Db, name: str) -> None:
    """A worker that is gone, with a running task that has an attempt and a heartbeat; and a workflow that goes on."""
    await given_worker(db, name, sweeping=True, last_heartbeat_at=LONG_AGO)
    held = {"claimed_by_worker_id": name, "started_at": LONG_AGO, **STALE}
    await given_task(db, id=name, status=RUNNING, **held)
    await given_attempt(db, name)
    await given_heartbeat(db, name, "runner", sent_at=LONG_AGO)
    await given_workflow(db, id=name, status="RUNNING", open_nodes=2, started_at=LONG_AGO)
    ended = {"result": '{"ok":1}', "completed_at": LONG_AGO, "updated_at": LONG_AGO}
    task = await given_task(db, id=f"{name}, node", status=TaskStatus.COMPLETED, workflow_id=name, **ended)
    common: dict[str, Any] = {"task_kwargs": "{}", "queue_name": "default", "priority": 1}
    await given_node(db, name, status="ENQUEUED", task_id=task, dependents=[1], **common)
    await given_node(db, name, task_index=1, dependencies=[0], deps_total=1, **common)


async def write(db: Db, table: str, column: str, name: str) -> None:
    where = {"horsies_tasks": "id", "horsies_workflows": "id", "horsies_workflow_tasks": "workflow_id"}.get(
        table, "task_id"
    )
    change = SQL("UPDATE {} SET {} = 'BOGUS' WHERE {} IN (%s, %s)").format(*map(Identifier, (table, column, where)))
    await db.execute(change, [name, f"{name}, node"])


@pytest.mark.parametrize(("table", "column"), WORDS)
async def test_d13_a_constraint_refuses_the_word(db: Db, table: str, column: str) -> None:
    await given_rows(db, "a")
    with pytest.raises(psycopg.errors.CheckViolation):
        await write(db, table, column, "a")


@pytest.mark.parametrize(("table", "column"), WORDS)
async def test_l19a_without_the_constraint_the_word_holds_up_nothing(
    db: Db, pool: Pool, table: str, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    await drop_constraints(db)
    await given_rows(db, "odd")
    await write(db, table, column, "odd")
    expected, flow = await healthy(db), await healthy_flow(db)
    waiting = await given_task(db, status=PENDING)
    worker = Worker(pool)
    assert waiting in await worker.claim()
    await worker.care()
    assert complaints(caplog) == []
    assert await ends(db, expected) == expected
    found = await db.execute("SELECT status FROM horsies_workflows WHERE id = %s", [flow])
    assert await found.fetchall() == [("COMPLETED",)]


async def test_m45_whoever_asks_gets_the_word_as_it_is(db: Db, broker: PostgresBroker) -> None:
    await drop_constraints(db)
    for number, (table, column) in enumerate(WORDS):
        await given_rows(db, f"odd {number}")
        await write(db, table, column, f"odd {number}")
    tasks = (await monitoring.list_tasks(broker, limit=100)).unwrap().items
    assert ODD in {task.status for task in tasks}
    runs = (await monitoring.list_workflow_runs(broker)).unwrap()
    assert ODD in {run.status for run in runs}
    for ask in (monitoring.task_stats, monitoring.task_facets, monitoring.list_workers, monitoring.take_snapshot):
        (await ask(broker)).unwrap()
    (await broker.get_stale_tasks()).unwrap()
    for task in tasks:
        assert (await monitoring.get_task_detail(broker, task.task_id)).unwrap() is not None
        assert (await monitoring.explain_task(broker, task.task_id)).unwrap() is not None
        info = (await broker.get_task_info_async(task.task_id, include_attempts=True)).unwrap()
        assert info is not None and info.status == task.status
        assert (await broker.get_result_async(task.task_id, timeout_ms=1)).is_err() or task.status != ODD
        (await broker.cancel_task_async(task.task_id, include_running=True)).is_ok()
    for run in runs:
        assert (await monitoring.get_workflow_run(broker, run.workflow_id)).unwrap() is not None
        handle: WorkflowHandle[Any] = WorkflowHandle(run.workflow_id, broker)
        assert (await handle.status_async()).unwrap() == run.status
        for ask_for in (handle.results_async, handle.tasks_async, handle.diagram_async, handle.cancel_async):
            (await ask_for()).unwrap()
