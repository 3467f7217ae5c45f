"""From the end of a task to the start of the next node: the transaction that enqueues it claims it too, if this worker
has room and nothing else waits; and whatever becomes of that transaction, nothing is lost and nothing runs twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import Horsies, WorkflowHandle
from horsies.core import events
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

LENGTH = 8

# Which transaction has made which state of which task, and of which node.
WATCHED = """
    CREATE TABLE seen (place serial, about text, status text, tx bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO seen (about, status, tx) VALUES (NEW.id::text, TG_ARGV[0] || NEW.status, txid_current());
        RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER INSERT OR UPDATE ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION note('');
    CREATE TRIGGER note AFTER UPDATE ON horsies_workflow_tasks FOR EACH ROW EXECUTE FUNCTION note('node ');
"""
# The first claim in the transaction that has written the task breaks like this.
BREAKING = """
    CREATE SEQUENCE breaks;
    CREATE FUNCTION break_once() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF OLD.created_at = now() AND nextval('breaks') = 2 THEN
            %s;
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER break_once BEFORE UPDATE ON horsies_tasks FOR EACH ROW
        WHEN (OLD.status = 'PENDING' AND NEW.status = 'CLAIMED') EXECUTE FUNCTION break_once();
"""
GONE = "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5)"
REFUSED = "RAISE EXCEPTION 'not this one'"


def chain(module: Any, length: int = LENGTH) -> Any:
    nodes = [module.pid.node()(name="0")]
    for place in range(1, length):
        nodes.append(module.pid.node(waits_for=[nodes[-1]])(name=str(place)))
    return module.app.workflow("chain", nodes, definition_key="chain")


async def run(spec: Any) -> WorkflowHandle[Any]:
    handle: WorkflowHandle[Any] = (await spec.start_async()).unwrap()
    assert (await handle.get_async(timeout_ms=60_000)).is_ok()
    return handle


async def transactions(rows: Rows, status: str) -> dict[str, int]:
    """Of each task, the transaction in which it came to this state."""
    found = await rows.all("SELECT about, tx FROM seen WHERE status = %s", status)
    return {row["about"]: row["tx"] for row in found}


def runs(traces: Path) -> list[int]:
    return [len((traces / str(place)).read_text().splitlines()) for place in range(LENGTH)]


async def test_w21a_l32_the_next_node_is_claimed_and_started_by_the_transaction_that_enqueues_it(
    basic: Any, rows: Rows, db: AsyncConnection[Any]
) -> None:
    """And the metrics of the worker hear of it."""
    told: list[str] = []

    def listen(name: str, facts: Any) -> None:
        if name == "tasks.claimed":
            told.extend(row.id for row in facts["rows"])

    await db.execute(WATCHED)
    unsubscribe = events.subscribe(listen)
    async with running_worker(basic.app, processes=1):
        for _ in range(5):
            await db.execute("TRUNCATE seen")
            told.clear()
            await run(chain(basic))
            sent, claimed, started, ended = [
                await transactions(rows, status) for status in ("PENDING", "CLAIMED", "RUNNING", "COMPLETED")
            ]
            with_step = [task for task in sent if sent[task] == claimed[task]]
            if len(with_step) >= LENGTH - 3:  # a worker that sees other tasks waiting claims by itself
                break
        else:
            pytest.fail("in none of five chains the steps claimed their tasks")
    unsubscribe()
    # They start with it too (W-21b), and so do their nodes; the end and the advance are two transactions (L-32).
    assert [task for task in with_step if started[task] == sent[task]] == with_step
    advanced = set((await transactions(rows, "node COMPLETED")).values())
    assert len(set(sent.values()) | set(ended.values())) == 2 * LENGTH
    assert len(advanced) == LENGTH and not advanced & set(ended.values())
    nodes = await rows.all("SELECT task_id, status, started_at FROM horsies_workflow_tasks ORDER BY task_index")
    times = await rows.all("SELECT id, enqueued_at, claimed_at, started_at, completed_at FROM horsies_tasks")
    began = {row["id"]: row["started_at"] for row in times}
    assert [began[node["task_id"]] for node in nodes] == [node["started_at"] for node in nodes]
    assert all(sorted(moments := list(row.values())[1:]) == moments for row in times)
    assert set(sent.values()) - {min(sent.values())} <= advanced
    assert sorted(told) == sorted(sent)


async def test_w21a_w24_it_takes_no_more_than_there_is_room_for(
    basic: Any, rows: Rows, db: AsyncConnection[Any], traces: Path
) -> None:
    """One step enqueues three nodes, and there is one slot."""
    await db.execute(WATCHED)
    first = basic.pid.node()(name="0")
    spec = basic.app.workflow(
        "fan",
        [first, *(basic.pid.node(waits_for=[first])(name=str(place)) for place in range(1, 4))],
        definition_key="fan",
    )
    async with running_worker(basic.app, processes=1, run_ahead_ms=0):
        await run(spec)
    held = 0
    for row in await rows.all("SELECT status FROM seen WHERE status NOT LIKE 'node %%' ORDER BY place"):
        held += {"CLAIMED": 1, "COMPLETED": -1}.get(row["status"], 0)
        assert held <= 1


async def test_w21a_w23_under_a_cap_the_claim_comes_after_the_step(
    basic: Any, rows: Rows, db: AsyncConnection[Any]
) -> None:
    """Its lock comes before all others (D-63)."""
    await db.execute(WATCHED)
    config = basic.app.config.model_copy(update={"cluster_wide_cap": 5})
    async with running_worker(Horsies(config), processes=1):
        await run(chain(basic, 4))
    sent, claimed = await transactions(rows, "PENDING"), await transactions(rows, "CLAIMED")
    assert len(sent) == 4 and not set(sent.values()) & set(claimed.values())


@pytest.mark.parametrize("how", [GONE, REFUSED], ids=["gone", "refused"])
async def test_w21a_a_step_whose_claim_breaks_is_made_again(
    basic: Any, rows: Rows, db: AsyncConnection[Any], traces: Path, how: str
) -> None:
    """Without a commit nothing is claimed and nothing enqueued."""
    await db.execute(BREAKING.replace("%s", how).encode())
    async with running_worker(basic.app, processes=1):
        await run(chain(basic))
    [broken] = await rows.all("SELECT last_value FROM breaks")
    assert broken["last_value"] >= 2 and runs(traces) == [1] * LENGTH
    found = await rows.all("SELECT retry_count, status FROM horsies_tasks")
    assert [(row["status"], row["retry_count"]) for row in found] == [("COMPLETED", 0)] * LENGTH
