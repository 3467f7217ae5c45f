"""The claim at the end of a step (W-21a) beside the passes of the same worker. Each may find the other one under way,
and still no more tasks are claimed than there are free slots, none twice, and none is left behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import WorkflowHandle
from horsies.core import events
from horsies.core.worker import startup
from horsies.core.worker.in_hand import Phase
from horsies.core.worker.service import Worker
from tests.e2e.workflows.conftest import FLOWS
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = [pytest.mark.e2e, pytest.mark.slow("many rows beside a busy worker")]

SLOTS = 2
PLAIN = 6
NAMES = ("first", "second", "third", "plain")

# Claims of this kind wait for whoever has the lock.
WAITING = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(21);
        RETURN NEW;
    END $$;
    CREATE TRIGGER wait BEFORE UPDATE ON horsies_tasks FOR EACH ROW
        WHEN (OLD.status = 'PENDING' AND NEW.status IN ('CLAIMED', 'RUNNING') AND %s) EXECUTE FUNCTION wait()
"""
WITH_A_STEP = "OLD.workflow_id IS NOT NULL AND OLD.created_at = now()"  # by the transaction that has written it
BY_ITSELF = "OLD.workflow_id IS NULL"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "LOCK_TIMEOUT_MS", 60_000)


@asynccontextmanager
async def busy_worker(flows: Any, traces: Path) -> AsyncIterator[tuple[Worker, WorkflowHandle[Any], list[int]]]:
    """A worker that runs the first node of a workflow, sees nothing else, and has one more slot; two nodes follow. Also
    how many tasks it has after each claim."""
    for name in NAMES:
        (traces / f"{name}.hold").touch()
    first = flows.number.node()(name="first", value=0)
    nodes = [first, *(flows.number.node(waits_for=[first])(name=name, value=0) for name in ("second", "third"))]
    spec = flows.app.workflow("fan", nodes, definition_key="fan")
    held: list[int] = []

    def listen(name: str, facts: Mapping[str, Any]) -> None:
        if name == "tasks.claimed" and facts["rows"]:
            held.append(len(facts["rows"]) + sum(1 for one in worker._in_hand if one.phase is not Phase.SETTLING))

    settings = {"app_locator": f"{FLOWS}:app", "processes": SLOTS, "run_ahead_ms": 0}
    async with running_worker(flows.app, **settings) as worker:
        unsubscribe = events.subscribe(listen)
        try:
            handle = (await spec.start_async()).unwrap()
            await eventually((traces / "first").exists, 30, what="the first node runs")
            # It looks again after a few pauses; a step that ends during one of these looks would not claim.
            await eventually(worker._claimer._may_sleep_on, what="nothing else waits, and it sleeps for long")
            yield worker, handle, held
            for name in NAMES:
                (traces / f"{name}.hold").unlink(missing_ok=True)
            assert (await handle.get_async(timeout_ms=30_000)).is_ok()
            await eventually(lambda: runs(traces) == [1, 1, 1, PLAIN], 30, what="each task runs once")
            await eventually(lambda: not len(worker._in_hand), 30, what="the worker has nothing left")
        finally:
            unsubscribe()
    assert held and max(held) <= SLOTS


async def is_waiting(rows: Rows) -> bool:
    return bool(await rows.all("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 21 AND NOT granted"))


def runs(traces: Path) -> list[int]:
    return [len((traces / name).read_text().splitlines()) if (traces / name).exists() else 0 for name in NAMES]


async def all_have_run_once(rows: Rows) -> bool:
    found = await rows.all("SELECT status, claim_seq, retry_count FROM horsies_tasks")
    return [tuple(row.values()) for row in found] == [("COMPLETED", 1, 0)] * (PLAIN + 3)


@pytest.mark.usefixtures("patient")
async def test_w21a_w24_no_pass_begins_while_a_step_claims(
    flows: Any, rows: Rows, db: AsyncConnection[Any], traces: Path
) -> None:
    await db.execute(WAITING.replace("%s", WITH_A_STEP).encode())
    await db.execute("SELECT pg_advisory_lock(21)")
    async with busy_worker(flows, traces) as (worker, _, _):
        (traces / "first.hold").unlink()
        await eventually(lambda: is_waiting(rows), 30, what="the step claims")
        calls = [flows.number.prepare("plain", value=0) for _ in range(PLAIN)]
        rings = worker._claimer._rings
        (await flows.number.send_many_async(calls)).unwrap()
        await eventually(lambda: worker._claimer._rings > rings, 30, what="a bell")
        assert worker._claimer.is_looking and await is_waiting(rows)
        await db.execute("SELECT pg_advisory_unlock(21)")
        await eventually(lambda: len(worker._in_hand) == SLOTS, 30, what="the slots are filled")
    assert await all_have_run_once(rows)


@pytest.mark.usefixtures("patient")
async def test_w21a_w24_a_step_claims_nothing_while_a_pass_is_under_way(
    flows: Any, rows: Rows, db: AsyncConnection[Any], traces: Path
) -> None:
    """Not even where the pass was made only because it was time for one, and the worker takes its queues for empty."""
    await db.execute(WAITING.replace("%s", BY_ITSELF).encode())
    await db.execute("SELECT pg_advisory_lock(21)")
    async with busy_worker(flows, traces) as (worker, handle, _):
        await db.execute("SET session_replication_role = replica")  # no trigger, so no bell
        calls = [flows.number.prepare("plain", value=0) for _ in range(PLAIN)]
        (await flows.number.with_options(connection=db).send_many_async(calls)).unwrap()
        await db.execute("SET session_replication_role = DEFAULT")
        await eventually(lambda: is_waiting(rows), 30, what="a pass claims")
        assert worker._claimer.is_dry and worker._claimer.is_looking
        (traces / "first.hold").unlink()
        query = "SELECT status FROM horsies_tasks WHERE workflow_id = %s AND status <> 'COMPLETED'"

        async def are_enqueued() -> bool:
            return len(await rows.all(query, handle.workflow_id)) == 2

        await eventually(are_enqueued, 30, what="the next nodes are enqueued")
        assert await is_waiting(rows)
        await db.execute("SELECT pg_advisory_unlock(21)")
        await eventually(lambda: len(worker._in_hand) == SLOTS, 30, what="the slots are filled")
    assert await all_have_run_once(rows)
