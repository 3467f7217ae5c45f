"""What a running worker does for tasks that are not its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.models.recovery import RecoveryConfig
from horsies.core.types.status import TaskStatus
from tests.factories import given_node, given_task, given_worker, given_workflow
from tests.services.workflows.flows import node, node_row, started, states
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

LONG_AGO = "2020-01-01"


def configure(basic: Any, **recovery: Any) -> None:
    basic.app.config = basic.app.config.model_copy(update={"recovery": RecoveryConfig(**recovery)})


async def is_served(rows: Rows) -> bool:
    return await rows.all("SELECT 1 FROM horsies_worker_states") != []


async def test_r15_a_worker_recovers_what_falls_silent_while_it_serves(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    async with running_worker(basic.app):  # looks every second
        await eventually(lambda: is_served(rows))
        for _ in range(2):  # at more than one tick
            noop = {"task_name": "noop", "kwargs": "{}"}
            claimed = await given_task(db, status=TaskStatus.CLAIMED, claimed_at=LONG_AGO, **noop)
            running = await given_task(db, status=TaskStatus.RUNNING, started_at=LONG_AGO, worker_pid=7)
            assert (await rows.until(running, "FAILED"))["error_code"] == "WORKER_CRASHED"
            await rows.until(claimed, "COMPLETED")
        assert await rows.attempts(claimed) != []


async def test_l07_w20_overdue_tasks_are_expired_about_every_second_however_rare_the_ticks_are(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    configure(basic, check_interval_ms=600_000)
    async with running_worker(basic.app):
        await eventually(lambda: is_served(rows))
        for _ in range(2):
            task_id = await given_task(db, good_until=LONG_AGO)
            assert (await rows.until(task_id, "EXPIRED"))["error_code"] == "TASK_EXPIRED"


async def test_r68_a_worker_without_worker_recovery_sweeps_one_that_nobody_sweeps(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    own = {"sweep_interval": 1_000, "sweep_threshold": 2_000, "heartbeat_interval": 1_000}
    await db.execute(
        "INSERT INTO horsies_workers (worker_id, last_heartbeat_at, sweeping, recovery) VALUES ('dead', %s, TRUE, %s)",
        [LONG_AGO, Jsonb({"worker_recovery": own})],
    )
    columns = {"task_name": "noop", "kwargs": "{}", "claimed_by_worker_id": "dead", "recovery_enrolled": True}
    task_id = await given_task(db, status=TaskStatus.RUNNING, started_at=LONG_AGO, **columns)
    async with running_worker(basic.app):
        row = await rows.until(task_id, "PENDING")
    assert row["failed_reason"] == "Job recovered after worker interruption"
    assert row["enqueued_at"] > row["updated_at"]  # after the delay of recovery
    assert [attempt["outcome"] for attempt in await rows.attempts(task_id)] == ["WORKER_FAILURE"]
    assert await rows.all("SELECT 1 FROM horsies_workers WHERE worker_id = 'dead'") == []


async def test_r23_r16_a_worker_whose_database_was_away_goes_on_with_its_ticks(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    async with running_worker(basic.app):
        await eventually(lambda: is_served(rows))
        await rows.all(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'horsies worker%%'"
        )
        task_id = await given_task(db, status=TaskStatus.RUNNING, started_at=LONG_AGO)
        await rows.until(task_id, "FAILED")


async def test_f96_r38_workflows_past_their_deadline_end_about_every_second_however_rare_the_ticks_are(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    configure(basic, check_interval_ms=600_000)
    async with running_worker(basic.app):
        await eventually(lambda: is_served(rows))
        for _ in range(2):
            workflow_id = await given_workflow(db, status="PAUSED", open_nodes=1, good_until=LONG_AGO)
            await given_node(db, workflow_id)

            async def has_ended(workflow_id: str = workflow_id) -> bool:
                [row] = await rows.all("SELECT status FROM horsies_workflows WHERE id = %s", workflow_id)
                return row["status"] == "FAILED"

            await eventually(has_ended)


async def test_r57_a_node_whose_task_expires_or_is_recovered_moves_its_workflow_at_once(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    """However rare the ticks are, and however long reconciliation would wait."""
    configure(basic, check_interval_ms=600_000, crashed_worker_recovery_grace_ms=3_600_000)
    dead = {"worker_id": "dead", "hostname": None, "liveness_key": 7, "last_heartbeat_at": LONG_AGO}
    async with running_worker(basic.app):
        await eventually(lambda: is_served(rows))
        overdue = await started(db, node("a", good_until=datetime.now(UTC) - timedelta(seconds=1)))
        silent = await started(db, node("b", queue_name="nobody's"))
        await given_worker(db, **dead, recovery=Jsonb({"worker_recovery": {"heartbeat_interval": 1_000}}))
        await db.execute(
            "UPDATE horsies_tasks SET status = 'CLAIMED', claimed = TRUE, claimed_by_worker_id = 'dead', claim_seq = 1,"
            " claimed_at = %(then)s, good_until = %(then)s WHERE workflow_id = %(id)s",
            {"then": LONG_AGO, "id": silent},
        )
        for workflow_id in (overdue, silent):

            async def has_failed(workflow_id: str = workflow_id) -> bool:
                return await states(db, workflow_id) == ("FAILED", "F")

            await eventually(has_failed)
            assert (await node_row(db, workflow_id, 0))["error_code"] == "TASK_EXPIRED"
