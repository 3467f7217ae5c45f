"""Whatever is in a row beside the tasks, in workflows and nodes, attempts, workers, heartbeats, snapshots, the waiting
list, no pass of a worker fails, nothing healthy is held up, and the listings answer (L-19a, D-14, R-24). Each value has
a row of its own; a round is one column, and a round that fails is repeated value by value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db import Pool
from horsies.core.types.status import TaskStatus
from tests.factories import (
    given_attempt,
    given_heartbeat,
    given_node,
    given_task,
    given_worker,
    given_worker_state,
    given_workflow,
)
from tests.odd_rows_support import VALUES, Planted, constrain, drop_constraints, plant, planted
from tests.recovery_support import LONG_AGO
from tests.services.passes import RUNNING, STALE, Db, Worker, clear, complaints, ends, healthy, healthy_flow

LINKS = {"parent_workflow_id", "sub_workflow_id", "root_workflow_id"}


@pytest.fixture
async def db(db: Db) -> Db:
    await drop_constraints(db)
    return db


async def odd_row(db: Db, what: Planted, number: int) -> None:
    """A row that the passes look at, with this value in it."""
    name = f"odd {number}"
    match what.table:
        case "horsies_workflows" | "horsies_workflow_tasks":
            flow = await given_workflow(db, id=name, status=("RUNNING", "PAUSED")[number % 2], open_nodes=2)
            ended = await given_task(db, status=TaskStatus.COMPLETED, workflow_id=flow, result='{"ok":1}')
            common: dict[str, Any] = {"task_kwargs": "{}", "queue_name": "default", "priority": 1}
            await given_node(db, flow, status="ENQUEUED", task_id=ended, dependents=[1], **common)
            await given_node(db, flow, task_index=1, dependencies=[0], deps_total=1, **common)
            if what.table == "horsies_workflows":
                await plant(db, what, "id", flow)
            elif what.column in ("task_index", "node_id"):
                await db.execute("DELETE FROM horsies_workflow_tasks WHERE workflow_id = %s AND task_index = 1", [flow])
                await plant(db, what, "workflow_id", flow)
            else:
                await plant(db, what, "workflow_id", flow, rows=2)
        case "horsies_task_attempts":
            await given_task(db, id=name, status=RUNNING, started_at=LONG_AGO, **STALE)
            await given_attempt(db, name)
            await plant(db, what, "task_id", name)
        case "horsies_heartbeats":
            await given_task(db, id=name, status=RUNNING, started_at=LONG_AGO, **STALE)
            await given_heartbeat(db, name, "runner", sent_at=LONG_AGO)
            await plant(db, what, "task_id", name)
        case "horsies_workers" | "horsies_worker_states":
            await given_worker(db, name, sweeping=number % 2 == 0, last_heartbeat_at=LONG_AGO, liveness_key=number)
            await given_worker_state(db, name, snapshot_at=LONG_AGO)
            await given_task(db, status=RUNNING, claimed_by_worker_id=name, started_at=LONG_AGO, **STALE)
            await plant(db, what, "worker_id", name)
        case _:
            await db.execute("INSERT INTO horsies_waiting VALUES ('a topic', %s, now())", [name])
            await plant(db, what, "holder", name)


async def release(db: Db, table: str) -> None:
    await db.execute(
        SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(Identifier(table), Identifier(f"{table}_limits_check"))
    )


async def wrong_with(
    db: Db, pool: Pool, values: Sequence[Planted], caplog: pytest.LogCaptureFixture, *, is_constrained: bool
) -> list[str]:
    """One round."""
    caplog.clear()
    for number, what in enumerate(values):
        await odd_row(db, what, number)
    table = values[0].table
    if is_constrained:
        await constrain(db, table)
    expected, flow = await healthy(db), await healthy_flow(db)
    waiting = {await given_task(db) for _ in range(3)}
    found = []
    try:
        worker = Worker(pool)
        claimed = await worker.claim()
        await worker.care()
        found = complaints(caplog)
        if not waiting <= claimed:
            found.append("the healthy ones were not claimed")
        if (reached := await ends(db, expected)) != expected:
            found.append(str(list(reached.values())))
        [(status,)] = await (await db.execute("SELECT status FROM horsies_workflows WHERE id = %s", [flow])).fetchall()
        if status != "COMPLETED":
            found.append(f"the healthy workflow is {status}")
    except Exception as problem:
        found.append(repr(problem))
    await clear(db)
    if is_constrained:
        await release(db, table)
    return found


TABLES = ("workflows", "workflow_tasks", "task_attempts", "workers", "heartbeats", "worker_states", "waiting")


@pytest.mark.slow("every odd value in every column of every table")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_constrained", [False, True], ids=["no constraints", "constraints not valid"])
@pytest.mark.parametrize("table", TABLES)
async def test_l19a_no_value_in_any_row_holds_up_another(
    db: Db, pool: Pool, table: str, is_constrained: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The constraints are about dates and counters."""
    found = []
    kinds = ("timestamp with time zone", "integer") if is_constrained else tuple(VALUES)
    rounds = groupby(await planted(db, f"horsies_{table}", kinds), attrgetter("column"))
    for column, values in [(column, list(values)) for column, values in rounds if column not in LINKS]:
        if await wrong_with(db, pool, values, caplog, is_constrained=is_constrained):
            for what in values:
                wrong = await wrong_with(db, pool, [what], caplog, is_constrained=is_constrained)
                found += [f"{what}: {line}" for line in wrong] or [f"{column}: only together"]
    assert found == []


async def test_r24_schedules_and_their_states_are_listed_whatever_is_in_them(db: Db, broker: PostgresBroker) -> None:
    names = []
    for table, key in (("horsies_schedules", "name"), ("horsies_schedule_state", "schedule_name")):
        for number, what in enumerate(await planted(db, table)):
            names.append(f"{table} {number}")
            await db.execute("INSERT INTO horsies_schedules (name, definition) VALUES (%s, '{}')", [names[-1]])
            await db.execute("INSERT INTO horsies_schedule_state (schedule_name) VALUES (%s)", [names[-1]])
            await plant(db, what, key, names[-1])
    listed = (await monitoring.list_schedules(broker)).unwrap()
    assert {one.name for one in listed} >= set(names)
