"""`WorkerUtils` as an operator uses it; the examples of the page on worker recovery are here as one would type them."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import (
    INFRASTRUCTURE_RESILIENT_FLAG,
    ActiveWorker,
    BrokerErrorCode,
    FailureReason,
    HookRegistry,
    Horsies,
    JobRecovery,
    JobRecoveryResult,
    PostgresConfig,
    SweepStaleWorkersOptions,
    SweepStaleWorkersResult,
    TaskError,
    TaskResult,
    TaskStatus,
    WorkerRecovered,
    WorkerRecoveryConfig,
    WorkerUtils,
    is_err,
)
from horsies.core.brokers.postgres import PostgresBroker
from tests.app_support import an_app
from tests.factories import given_heartbeat, given_task, given_worker, task_row

LONG_AGO = "2020-01-01"
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"

Db = AsyncConnection[Any]


@pytest.fixture
def utils(app: Horsies) -> WorkerUtils:
    return app.worker_utils()


def seconds_ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


async def interrupted(db: Db, owner: str = "w1", **columns: Any) -> str:
    known = {"claimed_by_worker_id": owner, "claimed_at": LONG_AGO, "started_at": LONG_AGO, "recovery_enrolled": True}
    return await given_task(db, status=TaskStatus.RUNNING, **{**known, **columns})


def waits(row: dict[str, Any]) -> timedelta:
    """How long a recovered task has to wait."""
    return datetime.fromisoformat(row["enqueued_at"]) - datetime.fromisoformat(row["updated_at"])


# The examples of the page


async def test_r43_the_example_that_lists_workers(db: Db, utils: WorkerUtils) -> None:
    await given_worker(db, "old", last_heartbeat_at=seconds_ago(90), started_at=LONG_AGO, hostname="h", pid=7)
    await given_worker(db, "new", sweeping=True)
    lines = []

    workers = (await utils.list_active_workers(timedelta(seconds=60))).unwrap()
    for worker in workers:
        lines.append(
            f"worker={worker.worker_id} stale={worker.is_stale} started_at={worker.started_at}"
            f" last_heartbeat_at={worker.last_heartbeat_at}"
        )

    assert [line.partition(" started_at")[0] for line in lines] == ["worker=old stale=True", "worker=new stale=False"]
    assert (workers[0].hostname, workers[0].pid) == ("h", 7)
    assert isinstance(workers[0], ActiveWorker)


async def test_r94_the_example_of_a_manual_sweep(db: Db, app: Horsies) -> None:
    await given_worker(db, "w1", sweeping=True, last_heartbeat_at=seconds_ago(61))
    await given_worker(db, "w2", sweeping=True, last_heartbeat_at=seconds_ago(10))
    mine, theirs = await interrupted(db), await interrupted(db, "w2")

    utils = WorkerUtils(app.get_broker())
    result = (
        await utils.sweep_stale_workers(
            SweepStaleWorkersOptions(
                sweep_threshold=timedelta(seconds=60),
                recovery_delay=timedelta(seconds=30),
                dry_run=False,
            )
        )
    ).unwrap()
    said = f"recovered {result.recovered_count} jobs from {result.worker_ids}"

    assert said == "recovered 1 jobs from ['w1']"
    assert waits(await task_row(db, mine)) == timedelta(seconds=30)
    assert (await task_row(db, theirs))["status"] == "RUNNING"


async def test_r95_the_example_with_a_configuration(db: Db, utils: WorkerUtils) -> None:
    for name, age in (("w1", 61), ("patient", 100), ("late", 181)):
        own = Jsonb({"worker_recovery": {"sweep_threshold": 300_000, "heartbeat_interval": 30_000}})
        await given_worker(db, name, sweeping=True, last_heartbeat_at=seconds_ago(age), recovery=own)
    await interrupted(db)
    for name in ("patient", "late"):
        await interrupted(db, name, flags=Jsonb({INFRASTRUCTURE_RESILIENT_FLAG: True}))

    config = (
        WorkerRecoveryConfig().with_sweep_threshold(timedelta(seconds=60)).with_resilient_sweep_threshold_multiplier(3)
    )
    result = (
        await utils.sweep_stale_workers_with_config(
            config, SweepStaleWorkersOptions(recovery_delay=timedelta(seconds=30), dry_run=False)
        )
    ).unwrap()

    assert (result.recovered_count, result.worker_ids) == (2, ["late", "w1"])


async def test_t37_r61_the_example_of_a_resilient_task(db: Db, app: Horsies, utils: WorkerUtils) -> None:
    @app.task("long_running")
    def long_running(id: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=id)

    job = await long_running.with_options(flags=[INFRASTRUCTURE_RESILIENT_FLAG]).send_async(1)

    await db.execute(
        "UPDATE horsies_tasks SET status = 'RUNNING', claimed = TRUE, claimed_by_worker_id = 'w1', claimed_at = %s"
        " WHERE id = %s",
        [LONG_AGO, job.unwrap().task_id],
    )
    options = SweepStaleWorkersOptions(sweep_threshold=60, dry_run=True)
    for age, dead in ((100, []), (190, ["w1"])):
        await db.execute("DELETE FROM horsies_workers")
        await given_worker(db, "w1", sweeping=True, last_heartbeat_at=seconds_ago(age))
        assert (await utils.sweep_stale_workers(options)).unwrap().worker_ids == dead


async def test_r71_r90_the_example_of_a_recovery_hook(db: Db, app: Horsies) -> None:
    await given_worker(db, "w1", sweeping=True, last_heartbeat_at=LONG_AGO)
    email = await interrupted(db, task_name="send_email")
    other = await interrupted(db, task_name="charge_card")
    seen = []

    hooks = HookRegistry()

    @hooks.on(JobRecovery)
    async def policy(ctx: JobRecovery) -> JobRecoveryResult:
        seen.append((ctx.worker_id, ctx.previous_worker_id, ctx.reason))
        if ctx.job.task_name == "send_email" and ctx.reason is FailureReason.WORKER_CRASHED:
            return JobRecoveryResult.Default
        return JobRecoveryResult.Skip

    utils = WorkerUtils(app.get_broker()).with_hooks(hooks)
    result = (await utils.sweep_stale_workers(SweepStaleWorkersOptions())).unwrap()

    assert result == SweepStaleWorkersResult(1, ["w1"], skipped_count=1, lock_acquired=True)
    assert [(await task_row(db, task_id))["status"] for task_id in (email, other)] == ["PENDING", "RUNNING"]
    me = f"utils:{socket.gethostname()}:{os.getpid()}"
    assert seen == [(me, "w1", "WORKER_CRASHED")] * 2


# Whose settings, whose hooks


async def test_r94_what_is_left_open_comes_from_the_app(db: Db, database_url: str) -> None:
    recovery = WorkerRecoveryConfig(
        enabled=False, heartbeat_interval=5, sweep_threshold=20, recovery_delay=7, max_recoveries_per_task=None
    )
    for name, age in (("alive", 0), ("w1", 21)):
        await given_worker(db, name, sweeping=True, last_heartbeat_at=seconds_ago(age))
    task_id = await interrupted(db)
    with an_app(database_url, worker_recovery=recovery) as app:  # though it is disabled there
        result = (await app.worker_utils().sweep_stale_workers()).unwrap()
    assert result.worker_ids == ["w1"]
    assert waits(await task_row(db, task_id)) == timedelta(seconds=7)


async def test_r94_without_an_app_the_defaults_hold(db: Db, database_url: str) -> None:
    for name, age in (("alive", 200), ("w1", 301)):
        await given_worker(db, name, sweeping=True, last_heartbeat_at=seconds_ago(age))
    task_id = await interrupted(db)
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    try:
        utils = WorkerUtils(broker)
        assert (await utils.sweep_stale_workers()).unwrap().worker_ids == ["w1"]
        assert waits(await task_row(db, task_id)) == timedelta(seconds=30)
    finally:
        await broker.close_async()


async def test_r94_an_override_is_for_this_call_only_and_taken_as_given(db: Db, utils: WorkerUtils) -> None:
    own = Jsonb({"worker_recovery": {"sweep_threshold": 600_000, "heartbeat_interval": 30_000}})
    await given_worker(db, "w1", sweeping=True, last_heartbeat_at=seconds_ago(400), recovery=own)
    await given_worker(db, "not sweeping", last_heartbeat_at=LONG_AGO)
    given = SweepStaleWorkersOptions(sweep_threshold=0.001, dry_run=True)
    assert (await utils.sweep_stale_workers(given)).unwrap().worker_ids == ["w1"]
    assert (await utils.sweep_stale_workers(SweepStaleWorkersOptions(dry_run=True))).unwrap().worker_ids == []


@pytest.mark.parametrize(
    ("config", "dead"),
    [
        (WorkerRecoveryConfig(sweep_threshold=300), ["w1"]),
        (WorkerRecoveryConfig().with_sweep_threshold(300), ["w1"]),
        (WorkerRecoveryConfig(resilient_job_flags=["x"]), []),
        (WorkerRecoveryConfig().with_resilient_job_flags(["x"]), []),
    ],
)
async def test_r95_a_threshold_that_a_configuration_names_is_taken_as_given(
    db: Db, utils: WorkerUtils, config: WorkerRecoveryConfig, dead: list[str]
) -> None:
    own = Jsonb({"worker_recovery": {"sweep_threshold": 600_000, "heartbeat_interval": 30_000}})
    await given_worker(db, "w1", sweeping=True, last_heartbeat_at=seconds_ago(400), recovery=own)
    dry = SweepStaleWorkersOptions(dry_run=True)
    assert (await utils.sweep_stale_workers_with_config(config, dry)).unwrap().worker_ids == dead
    over = SweepStaleWorkersOptions(sweep_threshold=500, dry_run=True)
    assert (await utils.sweep_stale_workers_with_config(config, over)).unwrap().worker_ids == []


async def test_r95_options_go_before_the_configurations_delay(db: Db, utils: WorkerUtils) -> None:
    config = WorkerRecoveryConfig(recovery_delay=99)
    for delay, expected in ((None, 99), (timedelta(0), 0)):
        task_id = await interrupted(db)
        options = SweepStaleWorkersOptions(recovery_delay=delay)
        assert (await utils.sweep_stale_workers_with_config(config, options)).unwrap().recovered_count == 1
        assert waits(await task_row(db, task_id)) == timedelta(seconds=expected)


async def test_r90_hooks_are_those_of_the_app_unless_others_are_given(db: Db, app: Horsies) -> None:
    called: list[str] = []
    app.hooks.on(WorkerRecovered, lambda event: called.append("app's"))
    others = HookRegistry()
    others.on(WorkerRecovered, lambda event: called.append("others"))
    utils = app.worker_utils()
    for each in (utils, utils.with_hooks(others), WorkerUtils(app.get_broker()), utils):
        await given_worker(db, "w1", sweeping=True, last_heartbeat_at=LONG_AGO)
        assert (await each.sweep_stale_workers()).unwrap().worker_ids == ["w1"]
    assert called == ["app's", "others", "app's", "app's"]


# By force


async def test_r96_workers_are_unlocked_by_force(db: Db, app: Horsies, utils: WorkerUtils) -> None:
    called: list[object] = []
    for event in (JobRecovery, WorkerRecovered):
        app.hooks.on(event, called.append)
    await given_worker(db, "w1", sweeping=True)
    task_id = await interrupted(db)
    await given_heartbeat(db, task_id, "runner")
    assert (await utils.force_unlock_workers(["w1"])).unwrap() == 1
    row = await task_row(db, task_id)
    assert (row["status"], waits(row)) == ("PENDING", timedelta(0))
    assert called == []
    assert (await utils.list_active_workers(60)).unwrap() == []
    assert is_err(await utils.force_unlock_workers("w1"))


# The edges


def test_r90_every_method_has_a_blocking_twin(app: Horsies) -> None:
    utils = app.worker_utils()
    assert utils.list_active_workers_sync(timedelta(minutes=5)).unwrap() == []
    assert utils.sweep_stale_workers_sync().unwrap() == SweepStaleWorkersResult(lock_acquired=True)
    config = WorkerRecoveryConfig(sweep_threshold=90)
    dry = SweepStaleWorkersOptions(dry_run=True)
    assert utils.sweep_stale_workers_with_config_sync(config, dry).unwrap() == SweepStaleWorkersResult(dry_run=True)
    assert utils.force_unlock_workers_sync(["nobody"]).unwrap() == 0


async def test_r90_a_database_that_is_away_is_a_value() -> None:
    with an_app(NOWHERE) as app:
        utils = app.worker_utils()
        for result in (
            await utils.list_active_workers(60),
            await utils.sweep_stale_workers(),
            await utils.sweep_stale_workers_with_config(WorkerRecoveryConfig()),
            await utils.force_unlock_workers(["w1"]),
        ):
            assert is_err(result)
            assert result.err_value.code is BrokerErrorCode.SCHEMA_INIT_FAILED and result.err_value.retryable


@pytest.mark.parametrize("threshold", [-1, "soon", timedelta(seconds=-1), float("inf")])
def test_r43_a_threshold_that_makes_no_sense_is_an_error(app: Horsies, threshold: Any) -> None:
    assert "threshold" in app.worker_utils().list_active_workers_sync(threshold).unwrap_err().message
