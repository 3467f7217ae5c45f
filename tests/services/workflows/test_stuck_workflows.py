"""`recover_stuck_workflows` as an operator calls it (R-37, R-97)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import (
    BrokerErrorCode,
    PostgresConfig,
    TaskError,
    TaskResult,
    WorkflowDefinition,
    is_err,
    recover_stuck_workflows,
    recover_stuck_workflows_sync,
)
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.worker.fence import Pulse
from tests.app_support import an_app
from tests.services.test_pool import refusing_port
from tests.services.workflows.flows import Db, child_node, child_of, end_task_of, node, started, states


@pytest.fixture
def db(clean_db: AsyncConnection[Any]) -> Db:
    return clean_db


@pytest.fixture
def broker(module_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=module_url))
    yield broker
    broker.close()


async def stuck(db: Db, *, seconds_ago: float = 3600.0) -> str:
    """A workflow whose first of two tasks has ended, and nobody has noticed."""
    workflow_id = await started(db, node("a"), node("b", 0))
    await end_task_of(db, workflow_id, 0, seconds_ago=seconds_ago)
    return workflow_id


async def test_r37_r97_what_is_stuck_goes_on(db: Db, broker: PostgresBroker) -> None:
    workflow_id = await stuck(db)
    assert (await recover_stuck_workflows(broker)).unwrap() == 2, "one node has ended, and one was enqueued"
    assert await states(db, workflow_id) == ("RUNNING", "CE")
    assert (await recover_stuck_workflows(broker)).unwrap() == 0
    await end_task_of(db, workflow_id, 1)
    assert (await recover_stuck_workflows(broker)).unwrap() == 2, "the other one, and the workflow"
    assert await states(db, workflow_id) == ("COMPLETED", "CC")


async def test_r37_the_grace_is_ten_seconds_unless_told_otherwise(db: Db, broker: PostgresBroker) -> None:
    workflow_id = await stuck(db, seconds_ago=8.0)
    assert (await recover_stuck_workflows(broker)).unwrap() == 0
    assert (await recover_stuck_workflows(broker, grace_ms=20_000)).unwrap() == 0
    assert (await recover_stuck_workflows(broker, grace_ms=7_000)).unwrap() > 0
    assert await states(db, workflow_id) == ("RUNNING", "CE")


async def test_r37_children_are_built_with_what_the_app_knows(db: Db, module_url: str) -> None:
    """A definition that this program has not imported is left to a worker that has."""
    with an_app(module_url) as app:

        @app.task("inside")
        def inside() -> TaskResult[int, TaskError]:
            return TaskResult(ok=1)

        class Known(WorkflowDefinition[int]):
            name = "known"
            definition_key = "stuck.known"
            first = inside.node()()

            class Meta:
                output = "first"

        known = await started(db, child_node("sub", key=Known.definition_key))
        unknown = await started(db, child_node("sub", key="stuck.unknown"))
        assert (await recover_stuck_workflows(app.get_broker(), 0)).unwrap() == 1
    assert await states(db, known) == ("RUNNING", "U")
    assert await states(db, await child_of(db, known, 0)) == ("RUNNING", "E")
    assert await states(db, unknown) == ("RUNNING", "R")


def test_r37_the_blocking_form(broker: PostgresBroker) -> None:
    assert recover_stuck_workflows_sync(broker, grace_ms=0).unwrap() == 0


async def test_r37_failures_are_values(db: Db, broker: PostgresBroker) -> None:
    away = PostgresBroker(PostgresConfig(database_url=f"postgresql://nobody@127.0.0.1:{refusing_port()}/none"))
    answer = await recover_stuck_workflows(away)
    away.close()
    assert is_err(answer) and answer.err_value.retryable
    for wrong in (-1, 1.5, True, "10"):
        refused = await recover_stuck_workflows(broker, grace_ms=wrong)  # type: ignore[arg-type]
        assert is_err(refused) and "grace_ms" in refused.err_value.message
        assert refused.err_value.code is BrokerErrorCode.DB_OPERATION_FAILED and not refused.err_value.retryable


async def test_r16_r36_a_tick_of_the_reaper_does_all_of_it_in_its_order(db: Db, clean_pool: Any) -> None:
    """Pass 5 settles the nodes, pass 6 the workflows: what both concern is over after one tick."""
    workflow_id = await started(db, node("a"), node("b", 0, node_type="MAP"))
    await end_task_of(db, workflow_id, 0)
    # Its other node has ended, but its own end was lost: only when the first is taken in is none open any more.
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'COMPLETED', dependencies = '{}' WHERE task_index = 1")
    await db.execute("UPDATE horsies_workflow_tasks SET dependents = '{}'")
    await db.execute("UPDATE horsies_workflows SET open_nodes = 1")
    lost = await started(db, node("c"))
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'COMPLETED' WHERE workflow_id = %s", [lost])
    await db.execute("UPDATE horsies_workflows SET open_nodes = 0 WHERE id = %s", [lost])
    await Reaper(clean_pool, RecoveryConfig(), WorkerRecoveryConfig(), NoHooks(), "me", Pulse(2.0)).tick()
    assert await states(db, workflow_id) == ("COMPLETED", "CC")
    assert await states(db, lost) == ("COMPLETED", "C")


async def test_r31_the_reaper_waits_for_the_configured_grace(db: Db, clean_pool: Any) -> None:
    workflow_id = await stuck(db, seconds_ago=60.0)
    for grace_ms, expected in ((3_600_000, "EP"), (10_000, "CE")):
        recovery = RecoveryConfig(crashed_worker_recovery_grace_ms=grace_ms)
        await Reaper(clean_pool, recovery, WorkerRecoveryConfig(), NoHooks(), "me", Pulse(2.0)).tick()
        assert await states(db, workflow_id) == ("RUNNING", expected)


async def test_r16_r35_the_reaper_does_not_wait_for_user_code(db: Db, clean_pool: Any) -> None:
    """It says which child has to be built, and goes on."""
    later: list[tuple[str, int]] = []
    ready, follows = await started(db, child_node("sub")), await started(db, node("a"), child_node("sub", 0))
    await db.execute("UPDATE horsies_workflow_tasks SET ready_at = '2020-01-01' WHERE status = 'READY'")
    await end_task_of(db, follows, 0)
    settings = (RecoveryConfig(), WorkerRecoveryConfig())
    await Reaper(clean_pool, *settings, NoHooks(), "me", Pulse(2.0), build_later=later.append).tick()
    assert sorted(later) == sorted([(ready, 0), (follows, 1)])
    assert (await states(db, ready), await states(db, follows)) == (("RUNNING", "R"), ("RUNNING", "CR"))
