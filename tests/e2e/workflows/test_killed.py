"""A worker is killed at each step of ending a task and advancing its workflow, and the next one goes on from there.

The database holds each step up until the worker is dead: a trigger that wants an advisory lock, which the test has.
What the dead worker had not committed is undone before the lock is given up, so that nothing of it lands late.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from psycopg import AsyncConnection

from tests.e2e.killing import kill_all
from tests.e2e.workflows.conftest import FLOWS
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

KEY = 4711
LENGTH = 9  # nodes before the child workflow
# Other locks may be waited for at any time, for a moment.
HELD_UP = """
    SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = %s AND NOT l.granted
"""
END_THEM = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'horsies %%'
"""


class Moment(NamedTuple):
    """`event` on `table` when `when` holds is held up, before the change, or (`at_commit`) as the last thing of the
    transaction. `runs`: how often the node of that moment is run in all."""

    name: str
    event: str
    table: str
    when: str
    at_commit: bool = False
    runs: tuple[str, int] = ("", 1)


NODES, TASKS, FLOW_ROWS = "horsies_workflow_tasks", "horsies_tasks", "horsies_workflows"
# In the order in which they come; each is about a node of its own, so that each is met exactly once.
MOMENTS = (
    Moment(
        "end not written", "UPDATE", TASKS, "NEW.status = 'COMPLETED' AND NEW.kwargs LIKE '%.n0\"%'", runs=("n0", 2)
    ),
    Moment(
        "end not committed", "UPDATE", TASKS, "NEW.status = 'COMPLETED' AND NEW.kwargs LIKE '%.n1\"%'", True, ("n1", 2)
    ),
    Moment("next task not inserted", "INSERT", TASKS, "NEW.kwargs LIKE '%.n3\"%'"),
    Moment("node not moved", "UPDATE", NODES, "NEW.status = 'COMPLETED' AND NEW.node_id = 'n3'"),
    Moment("next node not moved", "UPDATE", NODES, "NEW.status = 'ENQUEUED' AND NEW.node_id = 'n5'"),
    Moment("step not committed", "UPDATE", NODES, "NEW.status = 'COMPLETED' AND NEW.node_id = 'n5'", True),
    Moment("start not committed", "UPDATE", NODES, "NEW.status = 'RUNNING' AND NEW.node_id = 'n7'"),
    Moment("child not inserted", "INSERT", FLOW_ROWS, "NEW.parent_workflow_id IS NOT NULL"),
    Moment("child not committed", "UPDATE", NODES, "NEW.status = 'RUNNING' AND NEW.node_id = 'sub'", True),
    Moment("child's end not written", "UPDATE", FLOW_ROWS, "NEW.status = 'COMPLETED' AND NEW.depth = 1"),
    Moment("parent not told", "UPDATE", NODES, "NEW.status = 'COMPLETED' AND NEW.node_id = 'sub'"),
    Moment("end of all not committed", "UPDATE", FLOW_ROWS, "NEW.status = 'COMPLETED' AND NEW.depth = 0", True),
)
SOME = tuple(moment for moment in MOMENTS if moment.name in {"node not moved", "parent not told"})


@asynccontextmanager
async def held_up(db: AsyncConnection[Any], url: str, moment: Moment) -> AsyncIterator[AsyncConnection[Any]]:
    """From now until the end of the block nobody gets beyond this moment."""
    kind = "CONSTRAINT TRIGGER moment AFTER" if moment.at_commit else "TRIGGER moment BEFORE"
    timing = "DEFERRABLE INITIALLY DEFERRED" if moment.at_commit else ""
    async with await AsyncConnection.connect(url) as holder:
        await holder.execute("SELECT pg_advisory_xact_lock(%s)", [KEY])
        await db.execute(
            "CREATE OR REPLACE FUNCTION moment() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN PERFORM pg_advisory_xact_lock_shared({KEY}); RETURN NEW; END $$"
        )
        await db.execute(
            f"CREATE {kind} {moment.event} ON {moment.table} {timing} FOR EACH ROW"
            f" WHEN ({moment.when}) EXECUTE FUNCTION moment()".encode()
        )
        try:
            yield holder
        finally:
            await holder.commit()


async def kill_at(moment: Moment, db: AsyncConnection[Any], url: str, rows: Rows) -> None:
    async with held_up(db, url, moment):
        with WorkerProcess(url, locator=f"{FLOWS}:app") as worker:
            await eventually(lambda: rows.all(HELD_UP, KEY), 60, what=f"the worker comes to: {moment.name}")
            kill_all(worker)
        await eventually(lambda: ended(rows), what="its sessions have ended")
        await db.execute(f"DROP TRIGGER moment ON {moment.table}".encode())


async def ended(rows: Rows) -> bool:
    return not await rows.all(END_THEM)


async def story(moments: Sequence[Moment], flows: Any, db: AsyncConnection[Any], url: str, traces: Path) -> None:
    rows = Rows(url)
    handle = (await flows.chain("kill", LENGTH).start_async()).unwrap()
    await flows.app.get_broker().close_async()  # its sessions would be ended too
    for moment in moments:
        await kill_at(moment, db, url, rows)
    with WorkerProcess(url, locator=f"{FLOWS}:app") as worker:
        result = await handle.get_async(timeout_ms=60_000)
        assert result.unwrap() == LENGTH + 1
        assert worker.stop()[0] == 0
    expected = dict.fromkeys([*(f"n{n}" for n in range(LENGTH)), "first", "step1", "last"], 1)
    expected |= dict(moment.runs for moment in moments if moment.runs[0])
    assert {node: len((traces / f"kill.{node}").read_text().splitlines()) for node in expected} == expected
    attempts = await rows.all("SELECT count(*) FROM horsies_task_attempts")
    tasks = await rows.all("SELECT status, count(*) FROM horsies_tasks GROUP BY 1")
    assert attempts[0]["count"] == sum(expected.values())  # one for each run, and none for what never ran
    assert [(row["status"], row["count"]) for row in tasks] == [("COMPLETED", len(expected))]
    left = await rows.all("SELECT node_id FROM horsies_workflow_tasks WHERE status <> 'COMPLETED'")
    assert left == [] and await rows.all("SELECT 1 FROM horsies_workflows WHERE open_nodes <> 0") == []


async def test_l32_r30_r34_workers_killed_at_steps_of_ending_and_advancing(
    flows: Any, db: AsyncConnection[Any], database_url: str, traces: Path
) -> None:
    await story(SOME, flows, db, database_url, traces)


@pytest.mark.slow("kills a worker at every step of a workflow")
@pytest.mark.timeout(900)
async def test_l32_r30_r34_r35_r36_workers_killed_at_every_step(
    flows: Any, db: AsyncConnection[Any], database_url: str, traces: Path
) -> None:
    await story(MOMENTS, flows, db, database_url, traces)


@pytest.mark.slow("kills a worker at every step of a workflow")
async def test_r35_a_worker_killed_while_a_child_is_built(
    flows: Any, db: AsyncConnection[Any], database_url: str, traces: Path
) -> None:
    """The node is READY, and nobody has begun to write its child: the next worker builds it from the start."""
    rows = Rows(database_url)
    (traces / "held.build.hold").touch()
    handle = (await flows.chain("held", 1).start_async()).unwrap()
    with WorkerProcess(database_url, locator=f"{FLOWS}:app") as worker:
        await eventually((traces / "held.build").exists, 60, what="build_with has been called")
        kill_all(worker)
    (traces / "held.build.hold").unlink()
    with WorkerProcess(database_url, locator=f"{FLOWS}:app") as worker:
        assert (await handle.get_async(timeout_ms=60_000)).unwrap() == 2
        assert worker.stop()[0] == 0
    assert len(await rows.all("SELECT 1 FROM horsies_workflows")) == 2
    assert len((traces / "held.build").read_text().splitlines()) == 2
