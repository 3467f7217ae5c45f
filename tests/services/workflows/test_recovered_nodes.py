"""Tasks of workflows that recovery or expiry ends: whoever does it says so after the commit, so that their workflows go
on at once (R-57).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import RecoveryConfig, SweepStaleWorkersOptions, WorkerRecoveryConfig, WorkerUtils
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db.pool import Pool
from horsies.core.models.broker import PostgresConfig
from horsies.core.recovery.apply import EndedNode
from horsies.core.recovery.dead_workers import DeadWorkers
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.recovery.sweep import Sweeper
from horsies.core.types.status import TaskStatus
from horsies.core.worker.config import identify
from horsies.core.worker.fence import Pulse
from horsies.core.workflows.advance import advance
from tests.factories import given_task, given_worker, task_row
from tests.recovery_support import LONG_AGO, hasty
from tests.services.test_evidence import given_dead, given_running
from tests.services.workflows.flows import child_node, node, node_row, started, states

Db = AsyncConnection[Any]
SWEEPING = WorkerRecoveryConfig(enabled=True, recovery_delay=30)


@pytest.fixture
def db(clean_db: Db) -> Db:
    return clean_db


@pytest.fixture
def pool(clean_pool: Pool) -> Pool:
    return clean_pool


@pytest.fixture
def broker(module_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=module_url))
    yield broker
    broker.close()


async def a_running_node(db: Db, **task: Any) -> str:
    """The first of two nodes runs, and its worker is silent; the id of the workflow."""
    workflow_id = await started(db, node("a"), node("b", 0, allow_failed_deps=True))
    row = {"status": "RUNNING", "claimed": True, "claimed_by_worker_id": "w1", "claim_seq": 1}
    row |= {"claimed_at": LONG_AGO, "started_at": LONG_AGO, **task}
    changes = ", ".join(f"{name} = %({name})s" for name in row)
    await db.execute(f"UPDATE horsies_tasks SET {changes}".encode(), row)  # noqa: S608
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'RUNNING' WHERE task_index = 0")
    return workflow_id


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.ended: list[EndedNode] = []

    def __call__(self, ended: Iterable[EndedNode]) -> None:
        self.ended += ended


@pytest.fixture
def heard() -> Heard:
    return Heard()


def reaper(pool: Pool, heard: Heard) -> Reaper:
    return Reaper(pool, hasty(), WorkerRecoveryConfig(), NoHooks(), "me", Pulse(2.0), on_ended=heard)


async def test_r57_the_reaper_tells_of_tasks_that_it_ends(db: Db, pool: Pool, heard: Heard) -> None:
    failed = await given_task(db, status=TaskStatus.RUNNING, started_at=LONG_AGO, workflow_id="flow-1")
    late = {"good_until": LONG_AGO}
    overdue = await given_task(db, workflow_id="flow-2", **late)
    claimed = await given_task(db, status=TaskStatus.CLAIMED, claimed_at=LONG_AGO, workflow_id="flow-3", **late)
    for status in (TaskStatus.RUNNING, TaskStatus.CLAIMED):
        await given_task(db, status=status, started_at=LONG_AGO, claimed_at=LONG_AGO)
    await given_task(db, **late)
    await reaper(pool, heard).tick()
    assert sorted(heard.ended) == sorted([(failed, "flow-1"), (overdue, "flow-2"), (claimed, "flow-3")])
    assert [(await task_row(db, task_id))["status"] for task_id in (failed, overdue, claimed)] == [
        "FAILED", "EXPIRED", "EXPIRED",
    ]  # fmt: skip


async def test_r57_the_fallback_for_abandoned_workers_tells_as_well(db: Db, pool: Pool, heard: Heard) -> None:
    await given_worker(db, "abandoned", sweeping=True, last_heartbeat_at=LONG_AGO)
    columns = {"claimed_at": LONG_AGO, "started_at": LONG_AGO, "recovery_enrolled": True, "workflow_id": "flow"}
    owner = {"claimed_by_worker_id": "abandoned"}
    task_id = await given_task(db, status=TaskStatus.RUNNING, **columns, **owner)
    await reaper(pool, heard).tick()
    assert heard.ended == [(task_id, "flow")]


async def test_r57_the_sweeper_tells_after_its_commit(db: Db, pool: Pool, heard: Heard) -> None:
    """Enrolled tasks mostly come back; one whose deadline leaves no room for that fails (L-22)."""
    await given_worker(db, "w1", sweeping=True, last_heartbeat_at=LONG_AGO)
    columns = {"claimed_at": LONG_AGO, "started_at": LONG_AGO, "recovery_enrolled": True, "workflow_id": "flow"}
    soon = datetime.now(UTC) + timedelta(seconds=10)
    task_id = await given_task(db, status=TaskStatus.RUNNING, good_until=soon, **columns)
    sweeper = Sweeper(pool, SWEEPING, RecoveryConfig(), NoHooks(), "me", Pulse(2.0), on_ended=heard)
    await sweeper.step()
    assert heard.ended == [(task_id, "flow")]
    assert (await task_row(db, task_id))["status"] == "FAILED"


@pytest.mark.parametrize("is_enrolled", [False, True])
async def test_r57_r100_evidence_tells_of_what_a_dead_worker_held(
    db: Db, pool: Pool, heard: Heard, is_enrolled: bool
) -> None:
    me = replace(identify(), worker_id="me")
    pid = await given_dead(db, me, sweeping=is_enrolled)
    task_id = await given_running(db, pid, recovery_enrolled=is_enrolled, workflow_id="flow")
    await DeadWorkers(
        pool, pool, me, RecoveryConfig(), WorkerRecoveryConfig(), NoHooks(), Pulse(2.0), on_ended=heard
    ).look()
    assert heard.ended == [(task_id, "flow")]


async def test_r57_what_was_told_moves_the_workflow_at_once(db: Db, pool: Pool, heard: Heard) -> None:
    """No grace: who told it has committed, and is not between two transactions."""
    workflow_id = await a_running_node(db)
    await reaper(pool, heard).tick()
    assert await states(db, workflow_id) == ("RUNNING", "UP"), "the grace holds back reconciliation, which did not act"
    await advance(pool, [task_id for task_id, _ in heard.ended], None)
    assert await states(db, workflow_id) == ("RUNNING", "FE")
    assert (await node_row(db, workflow_id, 0))["error_code"] == "WORKER_CRASHED"


async def test_r57_back_to_the_queue_leaves_the_node_as_it_is(db: Db, pool: Pool, heard: Heard) -> None:
    await given_worker(db, "w1", sweeping=True, last_heartbeat_at=LONG_AGO)
    workflow_id = await a_running_node(db, recovery_enrolled=True)
    await Sweeper(pool, SWEEPING, RecoveryConfig(), NoHooks(), "me", Pulse(2.0), on_ended=heard).step()
    await advance(pool, [task_id for task_id, _ in heard.ended], None)
    assert await states(db, workflow_id) == ("RUNNING", "UP")
    assert (await task_row(db, (await node_row(db, workflow_id, 0))["task_id"]))["status"] == "PENDING"


# By hand


async def test_r57_r91_tasks_that_are_failed_by_hand_move_their_workflows(db: Db, broker: PostgresBroker) -> None:
    workflow_id = await a_running_node(db)
    assert (await broker.mark_stale_tasks_as_failed()).unwrap() == 1
    assert await states(db, workflow_id) == ("RUNNING", "FE")


async def test_r57_r91_claims_that_expire_when_they_are_given_back_do_too(db: Db, broker: PostgresBroker) -> None:
    workflow_id = await a_running_node(db, status="CLAIMED", good_until=LONG_AGO)
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'ENQUEUED' WHERE task_index = 0")
    assert (await broker.requeue_stale_claimed()).unwrap() == 0
    assert await states(db, workflow_id) == ("RUNNING", "FE")
    assert (await node_row(db, workflow_id, 0))["error_code"] == "TASK_EXPIRED"


async def test_r57_r94_r96_so_do_sweeps_by_hand(db: Db, broker: PostgresBroker) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=10)
    swept = await a_running_node(db, recovery_enrolled=True, good_until=soon)
    await given_worker(db, "w1", sweeping=True, last_heartbeat_at=LONG_AGO)
    utils = WorkerUtils(broker)
    options = SweepStaleWorkersOptions(recovery_delay=timedelta(seconds=30))
    assert (await utils.sweep_stale_workers(options)).unwrap().recovered_count == 1
    assert await states(db, swept) == ("RUNNING", "FE")
    await db.execute("TRUNCATE horsies_workflows, horsies_workflow_tasks, horsies_tasks CASCADE")
    unlocked = await a_running_node(db, good_until=LONG_AGO)
    assert (await utils.force_unlock_workers(["w1"])).unwrap() == 1
    assert await states(db, unlocked) == ("RUNNING", "FE")


async def test_r57_a_child_that_would_have_to_be_built_is_left_to_the_workers(db: Db, broker: PostgresBroker) -> None:
    workflow_id = await started(db, node("a"), child_node("sub", 0, allow_failed_deps=True))
    running = "UPDATE horsies_tasks SET status = 'RUNNING', claimed = TRUE, claimed_by_worker_id = 'w', started_at = %s"
    await db.execute(running, [LONG_AGO])
    assert (await broker.mark_stale_tasks_as_failed()).unwrap() == 1
    assert await states(db, workflow_id) == ("RUNNING", "FR")
