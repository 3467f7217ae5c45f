"""Whatever date or counter is in the row of a workflow or of a node, the workflow goes on or ends, and holds up no
other (L-19a, D-14). The constraints were added beside these rows, so that every change of them is refused."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb

from horsies.core.db import Pool
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.recovery.retention import Retention
from horsies.core.types.status import TaskStatus
from horsies.core.workflows import control
from tests.factories import end_task, given_node, given_task, given_workflow
from tests.odd_rows_support import Planted, constrain, drop_constraints, plant, planted
from tests.recovery_support import LONG_AGO, hasty
from tests.services.passes import Worker

pytestmark = [pytest.mark.slow("workflows with values that no constraint would let in"), pytest.mark.timeout(900)]

COMPLETED = TaskStatus.COMPLETED
LARGEST = "1000000000"  # still within
FLOWS, NODES = "horsies_workflows", "horsies_workflow_tasks"
OUTSIDE = ("timestamp with time zone", "integer")
# `task_index` says which row it is; nothing is computed from the others.
NOT_LIMITED = {
    "task_index",
    "output_index",
    "parent_task_index",
    "priority",
    "min_success",
    "map_index",
    "map_position",
}

Db = AsyncConnection[Any]


@pytest.fixture
async def db(db: Db) -> Db:
    await drop_constraints(db)
    return db


async def values(db: Db, table: str, *, all_of_them: bool = False) -> list[Planted]:
    """What is outside the limits: for every date and counter one value at each end, or all."""
    of_kind = [what for what in await planted(db, table, kinds=OUTSIDE) if what.column not in NOT_LIMITED]
    found = [what for what in of_kind if what.value != LARGEST]
    return [what for what in found if all_of_them or what.value not in ("infinity", "4000-01-01 BC")]


async def given_flow(db: Db, what: Planted | None, *, task: str = "COMPLETED", **columns: Any) -> str:
    """Two nodes, one after the other: the task of the first has ended, and nobody has advanced the workflow."""
    flow = await given_workflow(db, **{"status": "RUNNING", "open_nodes": 2, "started_at": LONG_AGO, **columns})
    task_id = await given_task(
        db, status=TaskStatus(task), workflow_id=flow, result='{"ok":1}', completed_at=LONG_AGO, updated_at=LONG_AGO
    )
    common: dict[str, Any] = {"task_kwargs": "{}", "queue_name": "default", "priority": 1}
    await given_node(db, flow, status="ENQUEUED", task_id=task_id, dependents=[1], **common)
    await given_node(db, flow, task_index=1, dependencies=[0], deps_total=1, **common)
    if what is not None:
        await plant(
            db, what, "id" if what.table == FLOWS else "workflow_id", flow, rows=1 if what.table == FLOWS else 2
        )
    return flow


async def given_flows(db: Db, *, all_of_them: bool = False, **columns: Any) -> dict[str, Planted | None]:
    """Healthy ones are in between."""
    found: list[Planted | None] = [None]
    for table in (FLOWS, NODES):
        for what in await values(db, table, all_of_them=all_of_them):
            found += [what, None] if what.value == "-infinity" else [what]
    flows = {await given_flow(db, what, **columns): what for what in found}
    await constrain(db)
    return flows


async def states(db: Db) -> dict[str, tuple[str, list[str]]]:
    cursor = await db.execute(
        "SELECT w.id, w.status, array_agg(n.status ORDER BY n.task_index) FROM horsies_workflows w"
        " JOIN horsies_workflow_tasks n ON n.workflow_id = w.id GROUP BY w.id, w.status"
    )
    return {flow: (status, nodes) for flow, status, nodes in await cursor.fetchall()}


async def others(db: Db, flows: dict[str, Planted | None], *expected: tuple[str, list[str]]) -> list[str]:
    """Those that have not come that far."""
    found = await states(db)
    return [f"{what}: {found[flow]}" for flow, what in flows.items() if found[flow] not in expected]


def reconciler(pool: Pool) -> Reconciler:
    return Reconciler(pool, None, timedelta(0))


async def test_l19a_a_workflow_with_a_value_outside_the_limits_goes_on_and_ends(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """A deadline in the far past has passed: that workflow ends at once."""
    flows = await given_flows(db, all_of_them=True)
    await reconciler(pool).run()
    over = ("FAILED", ["COMPLETED", "SKIPPED"])
    assert await others(db, flows, ("RUNNING", ["COMPLETED", "ENQUEUED"]), over) == []
    cursor = await db.execute("SELECT id FROM horsies_tasks WHERE status = 'PENDING'")
    for (task,) in await cursor.fetchall():
        await end_task(db, task, COMPLETED, '{"ok":2}')
    await reconciler(pool).run()
    assert await others(db, flows, ("COMPLETED", ["COMPLETED", "COMPLETED"]), over) == []
    lines = [record for record in caplog.records if "a workflow was mended" in record.getMessage()]
    assert {record.levelno for record in lines} == {logging.WARNING}
    assert any("deps_completed is 2147483647" in line.getMessage() for line in lines)
    assert {line.__dict__["horsies"]["workflow_id"] for line in lines} <= {flow for flow, what in flows.items() if what}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def pause(pool: Pool, flow: str) -> bool | None:
    return await control.pause(pool, flow)


async def cancel(pool: Pool, flow: str) -> bool | None:
    return await control.cancel(pool, flow, None)


async def resume(pool: Pool, flow: str) -> bool | None:
    return await control.resume(pool, flow, None)


@pytest.mark.parametrize(
    ("act", "before", "after"),
    [(pause, "RUNNING", "PAUSED"), (cancel, "RUNNING", "CANCELLED"), (resume, "PAUSED", "RUNNING")],
)
async def test_l19a_such_a_workflow_obeys(
    db: Db, pool: Pool, act: Callable[[Pool, str], Awaitable[bool | None]], before: str, after: str
) -> None:
    flows = await given_flows(db, status=before, task="PENDING")
    for flow in flows:
        assert await act(pool, flow) is True
    found = await states(db)
    wrong = [f"{what}: {found[flow][0]}" for flow, what in flows.items() if found[flow][0] not in (after, "FAILED")]
    assert wrong == []
    cancelled = await db.execute("SELECT count(*) FROM horsies_tasks WHERE status = 'CANCELLED'")
    assert (await cancelled.fetchone() or (0,))[0] >= (len(flows) if act is cancel else 0)


async def test_l19a_such_a_workflow_ends_at_its_deadline(db: Db, pool: Pool) -> None:
    flows = await given_flows(db, task="PENDING", good_until=LONG_AGO)
    await reconciler(pool).end_workflows(1e9)
    found = await states(db)
    assert [f"{what}: {found[flow]}" for flow, what in flows.items() if found[flow][0] == "RUNNING"
            and not (what and what.column == "good_until")] == []  # fmt: skip


async def test_l19a_a_task_outside_the_limits_is_cancelled_with_its_workflow(db: Db, pool: Pool) -> None:
    planted_in: dict[str, tuple[str, Planted]] = {}
    for what in await values(db, "horsies_tasks"):
        flow = await given_flow(db, None, task="PENDING")
        cursor = await db.execute("SELECT id FROM horsies_tasks WHERE workflow_id = %s", [flow])
        [(task,)] = await cursor.fetchall()
        await plant(db, what, "id", task)
        planted_in[flow] = task, what
    await constrain(db)
    for flow, (task, what) in planted_in.items():
        assert await cancel(pool, flow) is True
        cursor = await db.execute("SELECT status FROM horsies_tasks WHERE id = %s", [task])
        assert await cursor.fetchall() == [("CANCELLED",)], what


async def test_r19_the_task_of_a_node_outside_the_limits_returns_to_the_queue(db: Db, pool: Pool) -> None:
    stale = {"claimed": True, "claimed_by_worker_id": "gone", "claimed_at": LONG_AGO, "claim_expires_at": "2999-01-01"}
    flows = [await given_flow(db, what, task="PENDING") for what in [None, *await values(db, NODES)]]
    ended = SQL("UPDATE horsies_tasks SET status = 'CLAIMED', {}").format(
        SQL(", ").join(SQL("{} = {}").format(Identifier(name), value) for name, value in stale.items())
    )
    await db.execute(ended)
    await constrain(db)
    await Worker(pool).care()
    found = await db.execute("SELECT status, count(*) FROM horsies_tasks GROUP BY status")
    assert dict(await found.fetchall()) == {"PENDING": len(flows)}


async def test_f94_the_nodes_of_such_a_workflow_can_be_retried(db: Db, pool: Pool) -> None:
    flows = {}
    for what in [*await values(db, FLOWS), *await values(db, NODES)]:
        flow = await given_flow(db, None, status="FAILED", open_nodes=0, task="FAILED")
        await db.execute(
            "UPDATE horsies_workflow_tasks SET status = 'FAILED' WHERE workflow_id = %s AND task_index = 0", [flow]
        )
        await db.execute(
            "UPDATE horsies_workflow_tasks SET status = 'SKIPPED', deps_failed = 1"
            " WHERE workflow_id = %s AND task_index = 1",
            [flow],
        )
        await plant(
            db, what, "id" if what.table == FLOWS else "workflow_id", flow, rows=1 if what.table == FLOWS else 2
        )
        flows[flow] = what
    await constrain(db)
    wrong = [str(what) for flow, what in flows.items() if not await control.retry_nodes(pool, flow, None, None)]
    # A deadline in the far past has passed.
    assert wrong == [
        str(what)
        for what in flows.values()
        if what.table == FLOWS and (what.column, what.value) == ("good_until", "-infinity")
    ]
    found = await states(db)
    assert {found[flow][0] for flow, what in flows.items() if str(what) not in wrong} == {"RUNNING"}


async def test_l19a_a_map_counts_its_elements_again(db: Db, pool: Pool) -> None:
    """Three elements: one has ended before, one has ended just now, one was skipped."""
    counters = await values(db, NODES)
    flows = {}
    for what in [what for what in counters if what.column.startswith("deps_")]:
        flow = flows[what] = await given_workflow(db, status="RUNNING", open_nodes=1, started_at=LONG_AGO)
        ended = await given_task(db, status=COMPLETED, workflow_id=flow, result='{"ok":2}', completed_at=LONG_AGO)
        options = Jsonb({"first": 1, "count": 3, "mode": "x"})
        counts = {"deps_total": 3, "deps_completed": 1, "deps_skipped": 1}
        await given_node(db, flow, node_type="MAP", status="RUNNING", map_options=options, min_success=1, **counts)
        for place, (status, task) in enumerate([("COMPLETED", None), ("ENQUEUED", ended), ("SKIPPED", None)]):
            element = {"status": status, "task_id": task, "result": '{"ok":1}', "map_index": 0, "map_position": place}
            await given_node(db, flow, task_index=1 + place, node_type="ELEMENT", **element)
        await db.execute(
            SQL("UPDATE horsies_workflow_tasks SET {} = %s WHERE workflow_id = %s AND task_index = 0").format(
                Identifier(what.column)
            ),
            [int(what.value), flow],
        )
    await constrain(db)
    await reconciler(pool).run()
    found = await states(db)
    assert {str(what): found[flow][1][:2] for what, flow in flows.items()} == {
        str(what): ["COMPLETED", "COMPLETED"] for what in flows
    }


async def test_r80_old_tasks_and_workflows_of_such_rows_are_deleted(db: Db, pool: Pool) -> None:
    """A node that loses its task, or its child workflow, is changed by that."""
    for what in [None, *await values(db, FLOWS), *await values(db, NODES)]:
        flow = await given_flow(db, None, status="COMPLETED", completed_at="now")
        child = await given_flow(db, what, status="COMPLETED", completed_at=LONG_AGO)
        await db.execute(
            "UPDATE horsies_workflow_tasks SET sub_workflow_id = %s WHERE workflow_id = %s AND task_index = 1",
            [child, flow],
        )
        if what is not None and what.table == NODES:
            await plant(db, what, "workflow_id", flow, rows=2)
    await constrain(db)
    assert await Retention(pool, hasty(terminal_record_retention_hours=1), WorkerRecoveryConfig()).prune()
    cursor = await db.execute("SELECT count(*) FROM horsies_tasks")
    assert await cursor.fetchall() == [(0,)]
    cursor = await db.execute("SELECT count(*) FROM horsies_workflows WHERE completed_at < now() - interval '2 hours'")
    assert await cursor.fetchall() == [(0,)]
