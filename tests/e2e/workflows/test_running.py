"""Real workers run workflows: results go from node to node, children are built in the helper, and what hangs or breaks
somewhere holds up nobody else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies import NodeKey, WorkflowHandle, WorkflowStatus
from horsies.core.worker.service import Worker
from horsies.core.workflows.advance import Worklist
from tests.e2e.workflows.conftest import FLOWS
from tests.e2e.workflows.rows import flow_status
from tests.support import eventually
from tests.worker_support import Rows, make_worker, running_worker

pytestmark = pytest.mark.e2e

LOCATOR = f"{FLOWS}:app"


def pids(traces: Path, name: str) -> list[int]:
    path = traces / name
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


async def start(spec: Any) -> WorkflowHandle[Any]:
    handle: WorkflowHandle[Any] = (await spec.start_async()).unwrap()
    return handle


async def test_f33_f36_f37_f60_a_workflow_of_all_kinds_of_nodes_runs_to_its_end(
    flows: Any, rows: Rows, traces: Path
) -> None:
    """Results, an error and a skip reach who asked for them; a retry is no end (F-22, F-44); the child is built from
    what its parent knows, in the helper and nowhere else."""
    async with running_worker(flows.app, app_locator=LOCATOR, processes=2):
        handle = await start(flows.everything)
        ended = await handle.get_async(timeout_ms=60_000)
        assert ended.unwrap_err().error_code == "BROKEN"  # no policy: any failure is the workflow's
        told = (await handle.result_for_async(flows.told)).unwrap()
        assert (await handle.result_for_async(flows.child)).unwrap() == 8
        children = {row["worker_pid"] for row in await rows.all("SELECT worker_pid FROM horsies_tasks")}
    assert told == {
        "ids": [handle.workflow_id] * 2,
        "places": [6, 6],
        "names": ["flows.report"] * 2,
        "results": {"one": 1, "three": 6, "bad": "BROKEN", "never": "UPSTREAM_SKIPPED", "child": 8},
        "total": 3,
    }
    assert len(pids(traces, "two")) == 2 and len(pids(traces, "never")) == 0
    (builder,) = pids(traces, "sub.build")
    assert builder not in {os.getpid(), *children}
    starts = await rows.all("SELECT task_name, count(*) FROM horsies_tasks GROUP BY 1 ORDER BY 1")
    assert {row["task_name"].removeprefix("flows."): row["count"] for row in starts} == {
        "aplus": 1, "broken": 1, "flaky": 1, "number": 2, "plus": 2, "report": 1,
    }  # fmt: skip


async def test_x01_f33_f34_f61_f95_plain_values_go_from_node_to_node(flows: Any) -> None:
    """Also into a child workflow, which is built in the helper, and from map to map; the source that failed leaves the
    default."""
    async with running_worker(flows.app, app_locator=LOCATOR, processes=2):
        handle = await start(flows.of_plain_values())
        assert (await handle.get_async(timeout_ms=60_000)).unwrap_err().error_code == "BROKEN"
        told = await handle.result_for_async(NodeKey[str]("last"))
    assert told.unwrap() == f"{sum(n + 13 for n in range(3))} 3 -1"


async def test_w81_run_once_brings_a_whole_workflow_to_its_end(flows: Any, db: AsyncConnection[Any]) -> None:
    handle = await start(flows.chain("once", 3))
    assert await make_worker(flows.app, app_locator=LOCATOR).run_once() == 0
    assert await flow_status(db, handle.workflow_id) == "COMPLETED"
    assert (await handle.get_async(timeout_ms=1_000)).unwrap() == 4


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "unheard"])
async def test_w81_run_once_runs_what_its_own_reaper_is_just_enqueuing(
    flows: Any, db: AsyncConnection[Any], database_url: str, traces: Path, is_heard: bool
) -> None:
    """The reaper is in the middle of the step when everything else has come to an end; its notification may be lost."""
    handle = await start(flows.chain_of_tasks("behind", 2))
    await db.execute("""UPDATE horsies_tasks SET status = 'COMPLETED', result = '{"ok": 0}', completed_at = now()""")
    (traces / "busy.hold").touch()
    await flows.number.send_async("busy", 0)
    sleepy = flows.app.config.resilience.model_copy(update={"notify_poll_interval_ms": 60_000})
    flows.app.config = flows.app.config.model_copy(update={"resilience": sleepy})
    if not is_heard:
        await db.execute("ALTER TABLE horsies_tasks DISABLE TRIGGER USER")
    await db.execute(HELD_UP)
    async with await AsyncConnection.connect(database_url) as holder, asyncio.TaskGroup() as group:
        await holder.execute("SELECT pg_advisory_xact_lock(1)")
        worker = make_worker(flows.app, app_locator=LOCATOR)
        run = group.create_task(worker.run_once())
        await eventually(lambda: waits(db, "%INSERT INTO horsies_tasks%"), what="the reaper enqueues")
        await eventually(lambda: pids(traces, "busy"), what="a task runs")
        (traces / "busy.hold").unlink()
        await eventually(lambda: run.done() or sleeps(worker), what="nothing else is left to do")
        await holder.commit()
    assert run.result() == 0
    assert await flow_status(db, handle.workflow_id) == "COMPLETED"


HELD_UP = """
    CREATE FUNCTION held_up() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS
    $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
    CREATE TRIGGER held_up BEFORE INSERT ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION held_up();
"""


def sleeps(worker: Worker) -> bool:
    """It has no tasks, and will not look for any by itself."""
    return not worker._in_hand and worker._claimer._look_at > monotonic() + 10


async def test_f60_f64_builders_that_hang_or_break_hold_up_nobody(flows: Any, traces: Path) -> None:
    (traces / "held.build.hold").touch()
    async with running_worker(flows.app, app_locator=LOCATOR, processes=2):
        held = await start(flows.chain("held", 1))
        await eventually(lambda: pids(traces, "held.build"), what="build_with hangs")
        # A workflow that needs no helper goes on beside it.
        for handle in [await start(flows.chain_of_tasks(f"quick{n}", 5)) for n in range(3)]:
            assert (await handle.get_async(timeout_ms=30_000)).unwrap() == 4
        assert (await held.status_async()).unwrap() is WorkflowStatus.RUNNING
        (traces / "held.build.hold").unlink()
        assert (await held.get_async(timeout_ms=30_000)).unwrap() == 2
        for how in ("raise", "die"):
            handle = await start(flows.stubborn(how))
            ended = await handle.get_async(timeout_ms=30_000)
            assert ended.unwrap_err().error_code == "SUBWORKFLOW_LOAD_FAILED"
            assert (how == "die") == ("exited with code 3" in (ended.unwrap_err().message or ""))
        # The helper that died is replaced.
        assert (await (await start(flows.chain("after", 1))).get_async(timeout_ms=30_000)).unwrap() == 2


async def test_f50_f52_f53_paused_and_cancelled_while_a_worker_is_at_it(flows: Any, traces: Path) -> None:
    """One runs, the others are enqueued behind it: it ends as it would have, and they do not begin."""
    async with running_worker(flows.app, app_locator=LOCATOR, run_ahead_ms=0):
        paused = await at_work(flows, traces, "paused")
        assert (await paused.pause_async()).unwrap() is True
        (traces / "paused.n0.hold").unlink()
        await eventually(lambda: is_so(paused, n0="COMPLETED", last="PENDING"))
        # Another workflow passes it, with a worker that looks for tasks all the time.
        assert (await (await start(flows.chain_of_tasks("beside", 4))).get_async(timeout_ms=30_000)).unwrap() == 3
        assert await is_so(paused, n1="ENQUEUED", n2="ENQUEUED", n3="ENQUEUED") and not pids(traces, "paused.n1")
        assert (await paused.resume_async()).unwrap() is True
        assert (await paused.get_async(timeout_ms=30_000)).unwrap() == 4

        cancelled = await at_work(flows, traces, "cancelled")
        (await cancelled.cancel_async()).unwrap()
        assert await is_so(cancelled, n0="RUNNING", n1="SKIPPED", last="SKIPPED")
        (traces / "cancelled.n0.hold").unlink()
        await eventually(lambda: is_so(cancelled, n0="COMPLETED"))
        assert (await cancelled.status_async()).unwrap() is WorkflowStatus.CANCELLED
    assert [len(pids(traces, f"{label}.n1")) for label in ("paused", "cancelled")] == [1, 0]


async def at_work(flows: Any, traces: Path, label: str) -> WorkflowHandle[Any]:
    """Four side by side, of which the first runs as long as the test wants it."""
    (traces / f"{label}.n0.hold").touch()
    handle = await start(flows.fan(label, 4))
    await eventually(lambda: pids(traces, f"{label}.n0"), what="the first one runs")
    return handle


async def is_so(handle: WorkflowHandle[Any], **expected: str) -> bool:
    """Have these nodes these states?"""
    found = {info.node_id: info.status for info in (await handle.tasks_async()).unwrap()}
    return {node_id: found[node_id] for node_id in expected} == expected


async def test_l34_a_workflow_somebody_keeps_locked_waits_apart_and_the_others_go_on(
    flows: Any, db: AsyncConnection[Any], database_url: str
) -> None:
    stuck = await start(flows.chain_of_tasks("stuck", 3))
    async with await AsyncConnection.connect(database_url) as holder:
        await holder.execute("SELECT FROM horsies_workflows WHERE id = %s FOR UPDATE", [stuck.workflow_id])
        async with running_worker(flows.app, app_locator=LOCATOR):
            await eventually(lambda: waits(db), what="the advancer waits for the workflow")
            free = await start(flows.chain_of_tasks("free", 3))
            assert (await free.get_async(timeout_ms=30_000)).unwrap() == 2
            await holder.commit()
            assert (await stuck.get_async(timeout_ms=30_000)).unwrap() == 2


async def test_l34_an_advance_that_broke_is_made_again(flows: Any, db: AsyncConnection[Any]) -> None:
    """The session ends in the middle of each first try: of the step after the first task, of the one that writes the
    child, and of the one that tells the parent."""
    no_reconciliation(flows)
    await misfire(db, "horsies_workflow_tasks", "NEW.status = 'COMPLETED' AND NEW.node_id = 'n0'")
    await misfire(db, "horsies_workflow_tasks", "NEW.status = 'RUNNING' AND NEW.node_id = 'sub'")
    await misfire(db, "horsies_workflow_tasks", "NEW.status = 'COMPLETED' AND NEW.node_id = 'sub'")
    async with running_worker(flows.app, app_locator=LOCATOR):
        handle = await start(flows.chain("broken", 2))
        assert (await handle.get_async(timeout_ms=60_000)).unwrap() == 3
    assert await misfires(db) == 3


async def test_l34_an_end_that_has_landed_unseen_advances_its_workflow(
    flows: Any, db: AsyncConnection[Any], database_url: str, traces: Path
) -> None:
    """The worker's session ends while it writes the end of a task, and the end stands there all the same."""
    no_reconciliation(flows)
    (hold := traces / "unseen.n0.hold").touch()
    handle = await start(flows.chain_of_tasks("unseen", 2))
    query = "SELECT id FROM horsies_tasks WHERE workflow_id = %s FOR UPDATE"
    async with await AsyncConnection.connect(database_url) as holder, running_worker(flows.app, app_locator=LOCATOR):
        await eventually(lambda: is_node(db, "n0", "RUNNING"))
        (task,) = (await (await holder.execute(query, [handle.workflow_id])).fetchone()) or ("",)
        hold.unlink()
        await eventually(lambda: waits(db, "%SET status = 'COMPLETED'%"), what="the end waits to be written")
        await holder.execute(
            "UPDATE horsies_tasks SET status = 'COMPLETED', claimed = FALSE, completed_at = now(), result = %s"
            " WHERE id = %s",
            ['{"ok": 0}', task],
        )
        await cut(db)
        await holder.commit()
        assert (await handle.get_async(timeout_ms=30_000)).unwrap() == 1


async def test_l34_steps_that_have_landed_unseen_leave_nothing_undone(
    flows: Any, db: AsyncConnection[Any], database_url: str, traces: Path
) -> None:
    """Of the step after the first task nobody knows that a child is to be built, of the one that ends the child nobody
    knows that its parent is to be told."""
    no_reconciliation(flows)
    holds = [traces / f"unseen.{node_id}.hold" for node_id in ("n0", "step1")]
    for hold in holds:
        hold.touch()
    async with running_worker(flows.app, app_locator=LOCATOR):
        handle = await start(flows.chain("unseen", 1))
        await land_unseen(db, database_url, "n0", holds[0].unlink)
        assert await flow_status(db, handle.workflow_id) == "RUNNING"
        await land_unseen(db, database_url, "step1", holds[1].unlink)
        assert (await handle.get_async(timeout_ms=30_000)).unwrap() == 2


async def land_unseen(db: AsyncConnection[Any], url: str, node_id: str, go_on: Callable[[], None]) -> None:
    """When this node's task has ended, the step that the worker wants to take is taken here; it only sees that its
    session has ended."""
    query = "SELECT workflow_id, task_id FROM horsies_workflow_tasks WHERE node_id = %s"
    async with await AsyncConnection.connect(url) as holder:
        await eventually(lambda: is_node(db, node_id, "RUNNING"), 30)
        flow, task = (await (await holder.execute(query, [node_id])).fetchone()) or ("", "")
        await holder.execute("SELECT FROM horsies_workflows WHERE id = %s FOR UPDATE", [flow])
        go_on()
        await eventually(lambda: waits(db), 30, what="the advancer waits for the workflow")
        await Worklist(tasks=[task]).step(Lent(holder), None)
        await cut(db)
        await holder.commit()


class Lent:
    """A pool of this one connection, whose transaction is a step's as well."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        yield self._conn


async def test_w50_a_worker_that_stops_advances_what_it_has_ended(
    flows: Any, rows: Rows, db: AsyncConnection[Any], database_url: str
) -> None:
    """The end of the first node is written, the step that follows it waits when the stop comes."""
    handle = await start(flows.chain_of_tasks("stop", 2))
    async with await AsyncConnection.connect(database_url) as holder:
        await holder.execute("SELECT FROM horsies_workflows WHERE id = %s FOR UPDATE", [handle.workflow_id])
        async with running_worker(flows.app, app_locator=LOCATOR) as worker:
            await eventually(lambda: waits(db), what="the advancer waits for the workflow")
            releasing = asyncio.create_task(let_go_once_it_stops(worker, holder))
        await releasing
    states = await rows.all("SELECT node_id, status FROM horsies_workflow_tasks ORDER BY task_index")
    assert [(row["node_id"], row["status"]) for row in states] == [("n0", "COMPLETED"), ("n1", "ENQUEUED")]


async def let_go_once_it_stops(worker: Worker, holder: AsyncConnection[Any]) -> None:
    await eventually(lambda: worker._claimer.is_stopped, what="the worker takes nothing more")
    await holder.commit()


def no_reconciliation(flows: Any) -> None:
    """Nothing else than the worker's own perseverance helps: the grace is an hour."""
    patient = flows.app.config.recovery.model_copy(update={"crashed_worker_recovery_grace_ms": 3_600_000})
    flows.app.config = flows.app.config.model_copy(update={"recovery": patient})


async def waits(db: AsyncConnection[Any], statement: str = "%FROM horsies_workflows%") -> bool:
    """Does a worker wait for a row with this statement?"""
    query = (
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND application_name = 'horsies worker' AND query LIKE %s"
    )
    return await (await db.execute(query, [statement])).fetchone() == (True,)


async def is_node(db: AsyncConnection[Any], node_id: str, status: str) -> bool:
    cursor = await db.execute("SELECT status FROM horsies_workflow_tasks WHERE node_id = %s", [node_id])
    return await cursor.fetchone() == (status,)


async def misfire(db: AsyncConnection[Any], table: str, when: str) -> None:
    """The first session that makes this change is ended in the middle of it."""
    await db.execute("CREATE TABLE IF NOT EXISTS misfires (name text)")
    (number,) = (
        await (await db.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'misfire%'")).fetchone()
    ) or (0,)
    name = f"misfire{number}"
    await db.execute(f"CREATE SEQUENCE {name}".encode())
    await db.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('{name}') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); END IF;"
        " RETURN NEW; END $$".encode()
    )
    await db.execute(
        f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {name}()".encode()
    )


async def misfires(db: AsyncConnection[Any]) -> int:
    """How many of them have happened."""
    query = "SELECT count(*) FROM pg_sequences WHERE sequencename LIKE 'misfire%' AND last_value >= 1"
    row = await (await db.execute(query)).fetchone()
    assert row is not None
    return int(row[0])


async def test_w61_workflows_go_on_where_they_were_when_all_connections_are_cut(
    flows: Any, db: AsyncConnection[Any]
) -> None:
    async with running_worker(flows.app, app_locator=LOCATOR, processes=2):
        handles = [await start(flows.chain_of_tasks(f"cut{n}", 12)) for n in range(3)]
        for _ in range(4):
            await eventually(lambda: is_under_way(db))
            await cut(db)
        for handle in handles:
            result = await eventually(lambda h=handle: got(h), 60)
            assert result == 11


async def is_under_way(db: AsyncConnection[Any]) -> bool:
    row = await (await db.execute("SELECT count(*) > 0 FROM horsies_workflows WHERE status = 'RUNNING'")).fetchone()
    return row == (True,)


async def cut(db: AsyncConnection[Any]) -> None:
    await db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'horsies worker%'"
    )


async def got(handle: WorkflowHandle[Any]) -> int | None:
    try:
        found: int | None = (await handle.get_async(timeout_ms=5_000)).ok
    except psycopg.Error:
        return None
    return found
