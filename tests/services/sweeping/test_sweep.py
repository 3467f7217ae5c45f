"""The sweep on a real database: what becomes of the tasks of dead workers, hook by hook, and who else may be at work at
the same time. The statements by themselves are tried in tests/store/test_dead_workers.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection, errors
from psycopg.types.json import Jsonb

from horsies import (
    HookRegistry,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    PostgresConfig,
    RecoveryConfig,
    SweepStaleWorkersResult,
    WorkerRecovered,
    WorkerRecoveryConfig,
)
from horsies.core.db.connections import BY_INDEX, make_pool
from horsies.core.db.pool import Pool
from horsies.core.recovery import sweep as sweeping
from horsies.core.recovery.hooks import HookCaller, InProcess, NoHooks
from horsies.core.recovery.sweep import Sweeper, force_unlock, sweep_abandoned, sweep_workers
from horsies.core.store import holds, tasks
from horsies.core.store.holds import Beat
from horsies.core.store.tasks import Claimant, ClaimOrder
from horsies.core.store.workers import SWEEP_LOCK
from horsies.core.tasks.moves import Claim, Complete
from horsies.core.types.status import TaskStatus
from tests.factories import (
    given_attempt,
    given_heartbeat,
    given_node,
    given_task,
    given_worker,
    given_workflow,
    task_row,
)

CLAIMED, RUNNING = TaskStatus.CLAIMED, TaskStatus.RUNNING
LONG_AGO = "2020-01-01"
DELAY = timedelta(seconds=30)
POLICY = RecoveryConfig()
RETRYING = (
    '{"retry_policy": {"max_retries": 3, "intervals": [60, 120, 240], "backoff_strategy": "fixed", "jitter": false,'
    ' "auto_retry_for": ["WORKER_CRASHED"]}}'
)
RECOVERED = "Job recovered after worker interruption"

Db = AsyncConnection[Any]


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    """As many connections as anybody asks for."""
    pool = make_pool(PostgresConfig(database_url=database_url), min_size=2, max_size=40, options=BY_INDEX)
    yield pool
    await pool.close()


async def sweep(
    pool: Pool, config: WorkerRecoveryConfig | None = None, asker: HookCaller | None = None, **more: Any
) -> SweepStaleWorkersResult:
    config = config or WorkerRecoveryConfig()
    return await sweeping.sweep(pool, config, more.pop("policy", POLICY), asker or NoHooks(), **{"me": "me", **more})


async def dead_worker(db: Db, name: str = "w1", **columns: Any) -> str:
    await given_worker(db, name, **{"sweeping": True, "last_heartbeat_at": LONG_AGO, **columns})
    return name


async def interrupted(db: Db, status: TaskStatus = RUNNING, **columns: Any) -> str:
    """A task that a worker, `w1` unless told otherwise, has left behind."""
    run = {"started_at": LONG_AGO, "worker_pid": 7, "worker_hostname": "host", "worker_process_name": "child-7"}
    given = {"claimed_at": LONG_AGO, "claim_expires_at": LONG_AGO, "recovery_enrolled": True}
    return await given_task(db, status=status, **{**given, **(run if status is RUNNING else {}), **columns})


async def attempts_of(db: Db, task_id: str) -> list[tuple[Any, ...]]:
    cursor = await db.execute(
        "SELECT attempt, outcome, will_retry, error_code, failed_reason, worker_id FROM horsies_task_attempts"
        " WHERE task_id = %s ORDER BY attempt",
        [task_id],
    )
    return await cursor.fetchall()


async def workers_left(db: Db) -> list[str]:
    return [row[0] for row in await (await db.execute("SELECT worker_id FROM horsies_workers ORDER BY 1")).fetchall()]


def at(row: dict[str, Any], column: str) -> datetime:
    return datetime.fromisoformat(row[column])


def answering(decide: Callable[[JobRecovery], Any]) -> InProcess:
    hooks = HookRegistry()
    hooks.on(JobRecovery, decide)
    return InProcess(hooks)


# What becomes of a task


async def test_r50_an_interrupted_run_goes_back_uncharged_and_delayed(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db, retry_count=1, max_retries=3, claim_seq=4, finalizing_at=LONG_AGO)
    await given_attempt(db, task_id, attempt=1)
    assert await sweep(pool) == SweepStaleWorkersResult(1, ["w1"], lock_acquired=True)
    row = await task_row(db, task_id)
    assert row["status"] == "PENDING" and row["claimed"] is False
    assert (row["retry_count"], row["max_retries"], row["next_retry_at"]) == (1, 3, None)
    assert at(row, "enqueued_at") - at(row, "updated_at") == DELAY
    assert row["failed_reason"] == RECOVERED
    cleared = ("claimed_at", "claimed_by_worker_id", "claim_expires_at", "finalizing_at")
    cleared += ("started_at", "worker_pid", "worker_hostname", "worker_process_name")
    assert {row[column] for column in cleared} == {None}
    assert row["recovery_enrolled"] is False and row["claim_seq"] == 4
    assert await attempts_of(db, task_id) == [
        (1, "FAILED", False, None, None, None),
        (2, "WORKER_FAILURE", True, "WORKER_CRASHED", RECOVERED, "w1"),
    ]


async def test_r50_a_claim_goes_back_without_an_attempt(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db, CLAIMED, enqueued_at=LONG_AGO)
    assert (await sweep(pool, delay=timedelta(seconds=7))).recovered_count == 1
    row = await task_row(db, task_id)
    assert (row["status"], row["claimed"], row["claimed_by_worker_id"]) == ("PENDING", False, None)
    assert at(row, "enqueued_at") - at(row, "updated_at") == timedelta(seconds=7)
    assert row["failed_reason"] == RECOVERED
    assert await attempts_of(db, task_id) == []


async def test_r50_the_tasks_own_policy_is_not_asked(db: Db, pool: Pool) -> None:
    """Enabling worker recovery is the consent to run interrupted tasks again."""
    await dead_worker(db)
    task_id = await interrupted(db, retry_count=0, max_retries=0)
    await sweep(pool)
    row = await task_row(db, task_id)
    assert (row["status"], row["retry_count"]) == ("PENDING", 0)


async def test_l22_r50_a_deadline_that_leaves_no_room_ends_the_task(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    soon = datetime.now(UTC) + DELAY - timedelta(seconds=1)
    task_id = await interrupted(db, good_until=soon)
    await sweep(pool)
    row = await task_row(db, task_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "WORKER_CRASHED")
    assert (await attempts_of(db, task_id))[0][:3] == (1, "WORKER_FAILURE", False)


async def test_r51_a_task_is_rescheduled_and_its_counter_replaced(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    when = datetime.now(UTC) + timedelta(days=2)
    ids = {
        name: await interrupted(db, status, task_name=name, retry_count=1, max_retries=3)
        for name, status in {
            "kept": RUNNING,
            "lowered": RUNNING,
            "clamped": RUNNING,
            "claimed": CLAIMED,
            "anew": CLAIMED,
        }.items()
    }
    counters = {"lowered": 0, "clamped": 99, "anew": 0}
    asker = answering(lambda ctx: JobRecoveryResult.Reschedule(when, attempts=counters.get(ctx.job.task_name)))
    assert (await sweep(pool, asker=asker)).recovered_count == 5
    rows = {name: await task_row(db, task_id) for name, task_id in ids.items()}
    assert {row["status"] for row in rows.values()} == {"PENDING"}
    assert {at(row, "enqueued_at") for row in rows.values()} == {when}
    assert {name: row["retry_count"] for name, row in rows.items()} == {
        "kept": 1, "lowered": 0, "clamped": 3, "claimed": 1, "anew": 0,
    }  # fmt: skip
    assert {row["failed_reason"] for row in rows.values()} == {RECOVERED}
    assert [(a[0], a[1]) for a in await attempts_of(db, ids["lowered"])] == [(2, "WORKER_FAILURE")]


async def test_r51_a_time_in_the_past_means_at_once(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)
    await sweep(pool, asker=answering(lambda ctx: JobRecoveryResult.Reschedule(datetime(2000, 1, 1, tzinfo=UTC))))
    row = await task_row(db, task_id)
    assert at(row, "enqueued_at") == at(row, "updated_at")


async def test_r52_a_failure_goes_by_the_tasks_own_policy(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    again = await interrupted(db, task_options=RETRYING, max_retries=3, retry_count=1)
    over = await interrupted(db)
    not_started = await interrupted(db, CLAIMED)
    asker = answering(lambda ctx: JobRecoveryResult.FailWithBackoff)
    assert (await sweep(pool, asker=asker)).recovered_count == 3
    row = await task_row(db, again)
    assert (row["status"], row["retry_count"]) == ("PENDING", 2)
    assert at(row, "next_retry_at") - at(row, "updated_at") == timedelta(seconds=120)
    assert (await attempts_of(db, again))[0][:4] == (2, "WORKER_FAILURE", True, "WORKER_CRASHED")
    row = await task_row(db, over)
    assert (row["status"], row["error_code"]) == ("FAILED", "WORKER_CRASHED")
    assert "worker w1" in row["failed_reason"] and "process 7 on host" in row["failed_reason"]
    assert (await attempts_of(db, over))[0][:3] == (1, "WORKER_FAILURE", False)
    row = await task_row(db, not_started)  # there is no attempt to fail: Default
    assert (row["status"], row["failed_reason"], row["retry_count"]) == ("PENDING", RECOVERED, 0)
    assert at(row, "enqueued_at") - at(row, "updated_at") >= DELAY
    assert await attempts_of(db, not_started) == []


async def test_r53_a_skipped_task_stays_locked_and_is_offered_again_as_an_orphan(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)
    before = await task_row(db, task_id)
    asked: list[str] = []

    def skip(ctx: JobRecovery) -> JobRecoveryResult:
        asked.append(ctx.job.id)
        return JobRecoveryResult.Skip

    for _ in range(2):
        result = await sweep(pool, asker=answering(skip))
        assert result == SweepStaleWorkersResult(0, ["w1"], skipped_count=1, lock_acquired=True)
        assert await workers_left(db) == []
    assert await task_row(db, task_id) == before
    assert asked == [task_id, task_id]


@pytest.mark.parametrize("status", [CLAIMED, RUNNING])
async def test_r54_what_is_recovered_frees_its_place_under_a_cap(db: Db, pool: Pool, status: TaskStatus) -> None:
    await dead_worker(db)
    await interrupted(db, status, queue_name="q")
    waiting = await given_task(db, queue_name="q")
    one_at_a_time = ClaimOrder(["q"], [9], [1], 9, 9, None, True, [])
    who = Claimant("other", timedelta(minutes=1), enrolled=False)
    assert await tasks.claim(db, who, one_at_a_time) == []
    await sweep(pool)
    assert [row.id for row in await tasks.claim(db, who, one_at_a_time)] == [waiting]


async def test_r56_the_old_owner_is_fenced(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    running, claimed = await interrupted(db), await interrupted(db, CLAIMED)
    await sweep(pool)
    old = Claim(running, 1)
    assert await tasks.apply(db, "w1", [Complete(old, "{}")]) == set()
    assert await holds.heartbeat(db, "w1", "host", [Beat(old, True, "w1/7", 7)]) == set()
    who = Claimant("w1", timedelta(minutes=1), enrolled=True)
    assert await holds.renew(db, who, [Claim(claimed, 1)], timedelta(hours=9999)) == set()
    assert await tasks.start(db, "w1", "host", [Claim(claimed, 1)], [7], ["p"]) == set()


async def test_r57_the_node_of_a_workflow_stays_as_it_is(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    workflow_id = await given_workflow(db, status="RUNNING", open_nodes=1)
    task_id = await interrupted(db, workflow_id=workflow_id)
    await given_node(db, workflow_id, task_id=task_id, status="RUNNING")
    before = await (await db.execute("SELECT * FROM horsies_workflow_tasks")).fetchall()
    await sweep(pool)
    assert (await task_row(db, task_id))["status"] == "PENDING"
    assert await (await db.execute("SELECT * FROM horsies_workflow_tasks")).fetchall() == before


@pytest.mark.parametrize("answer", [JobRecoveryResult.Default, JobRecoveryResult.Reschedule(datetime.now(UTC))])
async def test_r58_a_task_that_costs_every_worker_its_life_is_stopped(
    db: Db, pool: Pool, answer: JobRecoveryResult
) -> None:
    await dead_worker(db)
    ids = [await interrupted(db, claim_seq=4) for _ in range(4)]
    retrying = await interrupted(db, task_options=RETRYING, max_retries=3, claim_seq=4)
    for task_id, crashes in (*zip(ids, range(4), strict=True), (retrying, 2)):
        for attempt in range(crashes):
            await given_attempt(db, task_id, attempt=attempt + 1, outcome="WORKER_FAILURE")
    claimed = await interrupted(db, CLAIMED)
    for attempt in range(9):
        await given_attempt(db, claimed, attempt=attempt + 1, outcome="WORKER_FAILURE")
    asker = answering(lambda ctx: answer)
    assert (await sweep(pool, WorkerRecoveryConfig(max_recoveries_per_task=2), asker)).recovered_count == 6
    statuses = [(await task_row(db, task_id))["status"] for task_id in (*ids, claimed)]
    assert statuses == ["PENDING", "PENDING", "FAILED", "FAILED", "PENDING"]
    row = await task_row(db, retrying)  # its own policy may bring it back
    assert (row["status"], row["retry_count"]) == ("PENDING", 1) and row["next_retry_at"] is not None


async def test_r58_without_a_limit_it_goes_on(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)
    for attempt in range(9):
        await given_attempt(db, task_id, attempt=attempt + 1, outcome="WORKER_FAILURE")
    await sweep(pool, WorkerRecoveryConfig(max_recoveries_per_task=None))
    assert (await task_row(db, task_id))["status"] == "PENDING"


# The procedure


async def test_r44_the_dead_lose_their_rows_the_living_keep_everything(db: Db, pool: Pool) -> None:
    await dead_worker(db, "idle and dead")
    await given_worker(db, "alive", sweeping=True)
    await given_worker(db, "not sweeping", last_heartbeat_at=LONG_AGO)
    untouched = [await interrupted(db, claimed_by_worker_id=name) for name in ("alive", "not sweeping")]
    before = [await task_row(db, task_id) for task_id in untouched]
    assert await sweep(pool) == SweepStaleWorkersResult(0, ["idle and dead"], lock_acquired=True)
    assert await workers_left(db) == ["alive", "not sweeping"]
    assert [await task_row(db, task_id) for task_id in untouched] == before


async def test_r45_orphans_are_recovered_and_their_workers_reported(db: Db, pool: Pool) -> None:
    await dead_worker(db, "dead")
    orphan = await interrupted(db, claimed_by_worker_id="orphan's")
    other = await interrupted(db, claimed_by_worker_id="not enrolled", recovery_enrolled=False)
    assert await sweep(pool) == SweepStaleWorkersResult(1, ["dead", "orphan's"], lock_acquired=True)
    assert (await task_row(db, orphan))["status"] == "PENDING"
    assert (await task_row(db, other))["status"] == "RUNNING"


async def test_r46_nobody_sweeps_itself(db: Db, pool: Pool) -> None:
    await dead_worker(db, "me")
    task_id = await interrupted(db, claimed_by_worker_id="me")
    assert await sweep(pool) == SweepStaleWorkersResult(lock_acquired=True)
    await db.execute("DELETE FROM horsies_workers")  # not even as an orphan's
    assert (await sweep(pool)).worker_ids == []
    assert (await task_row(db, task_id))["status"] == "RUNNING"


async def test_r47_what_still_goes_on_is_deferred_and_found_later_as_an_orphan(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    writing = await interrupted(db, finalizing_at=datetime.now(UTC))
    beating = await interrupted(db)
    await given_heartbeat(db, beating, "runner")
    silent = await interrupted(db)
    assert await sweep(pool) == SweepStaleWorkersResult(1, ["w1"], deferred_count=2, lock_acquired=True)
    assert (await task_row(db, silent))["status"] == "PENDING"
    assert await workers_left(db) == []
    await db.execute("UPDATE horsies_heartbeats SET sent_at = %s", [LONG_AGO])
    assert await sweep(pool) == SweepStaleWorkersResult(1, ["w1"], deferred_count=1, lock_acquired=True)
    assert [(await task_row(db, task_id))["status"] for task_id in (beating, writing)] == ["PENDING", "RUNNING"]


async def test_r49_the_result_counts_what_was_done(db: Db, pool: Pool) -> None:
    for name in ("b", "c", "a"):
        await dead_worker(db, name)
    await interrupted(db, claimed_by_worker_id="b")
    await interrupted(db, CLAIMED, claimed_by_worker_id="a")
    await interrupted(db, claimed_by_worker_id="c", task_name="skip")
    await interrupted(db, claimed_by_worker_id="0, an orphan's", finalizing_at=datetime.now(UTC))
    asker = answering(lambda ctx: JobRecoveryResult.Skip if ctx.job.task_name == "skip" else None)
    result = await sweep(pool, asker=asker)
    assert (result.recovered_count, result.skipped_count, result.deferred_count) == (2, 1, 1)
    assert result.worker_ids == ["0, an orphan's", "a", "b", "c"]
    assert (result.dry_run, result.lock_acquired) == (False, True)
    dry = await sweep(pool, dry_run=True)
    assert (dry.recovered_count, dry.worker_ids, dry.dry_run) == (0, ["0, an orphan's", "c"], True)


async def test_r48_a_dry_run_tells_and_changes_nothing(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)
    await interrupted(db, claimed_by_worker_id="orphan's")
    before = await task_row(db, task_id)
    hooks = HookRegistry()
    called: list[Any] = []
    for event in (JobRecovery, JobInterrupted, WorkerRecovered):
        hooks.on(event, called.append)
    async with db.transaction():  # it needs no lock
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [SWEEP_LOCK])
        await db.execute("SELECT 1 FROM horsies_tasks, horsies_workers FOR UPDATE")
        result = await sweep(pool, asker=InProcess(hooks), dry_run=True)
    assert result == SweepStaleWorkersResult(0, ["orphan's", "w1"], dry_run=True, lock_acquired=False)
    assert await task_row(db, task_id) == before
    assert await workers_left(db) == ["w1"]
    assert called == []


async def test_d62_r44_whoever_finds_somebody_sweeping_leaves(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [SWEEP_LOCK])
        assert await sweep(pool) == SweepStaleWorkersResult()
        assert (await task_row(db, task_id))["status"] == "RUNNING"
    assert (await sweep(pool)).recovered_count == 1


async def test_r44_more_than_fit_into_one_transaction_are_swept_one_after_the_other(db: Db, pool: Pool) -> None:
    """Each is offered once, the skipped and the deferred ones too."""
    await dead_worker(db)
    await dead_worker(db, "w2", recovery=Jsonb({"finalizing_stale_threshold_ms": 7_200_000}))
    await db.execute(
        """
        INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq, claimed_at,
                                   started_at, recovery_enrolled, finalizing_at, flags)
        SELECT 'task ' || n, CASE WHEN n % 7 = 0 THEN 'skip' ELSE 'go' END, 'RUNNING', TRUE, 'w' || 1 + n % 2, 1,
               now() - interval '1 day' + n % 100 * interval '1 s', now() - interval '1 day', TRUE,
               CASE WHEN n % 10 = 3 THEN now() - interval '1 hour' END, '{}'
        FROM generate_series(1, 1700) AS n
        """
    )
    offered: list[str] = []
    order: list[datetime] = []
    transactions: list[int] = []
    left_s: list[float] = []

    def decide(ctx: JobRecovery) -> JobRecoveryResult:
        offered.append(ctx.job.id)
        assert ctx.job.claimed_at is not None
        order.append(ctx.job.claimed_at)
        return JobRecoveryResult.Skip if ctx.job.task_name == "skip" else JobRecoveryResult.Default

    class Counting(InProcess):
        async def decide(self, jobs: Any, **more: Any) -> Any:
            transactions.append(len(jobs))
            left_s.append(more["within_s"])
            return await super().decide(jobs, **more)

    hooks = HookRegistry()
    hooks.on(JobRecovery, decide)
    result = await sweep(pool, asker=Counting(hooks))
    # Every tenth is an odd number of w2, and finalizing for an hour, which that worker's own settings allow.
    deferred = {f"task {n}" for n in range(1, 1701) if n % 10 == 3}
    assert result.deferred_count == len(deferred) == 170
    assert len(offered) == len(set(offered)) == 1530 and not deferred & set(offered)
    assert order == sorted(order)
    assert result.skipped_count == len([task_id for task_id in offered if int(task_id[5:]) % 7 == 0])
    assert result.recovered_count == 1530 - result.skipped_count
    assert len(transactions) == 4 and max(transactions) <= 500
    assert left_s[0] == 60 and left_s == sorted(set(left_s), reverse=True)  # for all of them together
    assert await workers_left(db) == []


async def test_r44_a_task_the_database_refuses_does_not_keep_the_others(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await dead_worker(db)
    ids = [await interrupted(db) for _ in range(9)]
    await db.execute(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.id = '{ids[4]}' THEN RAISE 'not this one'; END IF; RETURN NEW; END; $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION refuse();
        """.encode()
    )
    try:
        result = await sweep(pool)
    finally:
        await db.execute("DROP FUNCTION refuse CASCADE")
    assert result == SweepStaleWorkersResult(8, ["w1"], skipped_count=1, lock_acquired=True)
    statuses = [(await task_row(db, task_id))["status"] for task_id in ids]
    assert statuses == ["PENDING"] * 4 + ["RUNNING"] + ["PENDING"] * 4
    assert await attempts_of(db, ids[4]) == []
    [complaint] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "not this one" in complaint.getMessage() and complaint.horsies["task_id"] == ids[4]  # type: ignore[attr-defined]


async def test_r44_hooks_are_asked_without_a_lock_on_any_row(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)

    async def decide(ctx: JobRecovery) -> JobRecoveryResult:
        async with pool.connection() as conn, conn.transaction():
            await conn.execute("SELECT 1 FROM horsies_tasks, horsies_workers FOR UPDATE NOWAIT")
        return JobRecoveryResult.Default

    assert (await sweep(pool, asker=answering(decide))).recovered_count == 1
    assert (await task_row(db, task_id))["status"] == "PENDING"


async def test_r50_the_delay_counts_from_when_the_hooks_have_answered(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)
    answered: list[datetime] = []

    async def decide(ctx: JobRecovery) -> None:
        await asyncio.sleep(1.5)
        async with pool.connection() as conn:
            [(now,)] = await (await conn.execute("SELECT clock_timestamp()")).fetchall()
        answered.append(now)

    await sweep(pool, asker=answering(decide), delay=timedelta(seconds=1))
    assert at(await task_row(db, task_id), "enqueued_at") >= answered[0] + timedelta(seconds=1)


async def test_r55_r67_whoever_comes_first_while_the_hooks_are_asked_has_the_task(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    ids = {name: await interrupted(db, task_name=name) for name in ("finished", "locked", "reclaimed", "left")}
    async with pool.connection() as other:

        async def decide(ctx: JobRecovery) -> None:
            if ctx.job.task_name == "finished":
                assert await tasks.apply(db, "w1", [Complete(Claim(ids["finished"], 1), '{"ok": 1}')])
            elif ctx.job.task_name == "locked":
                await other.execute("BEGIN")
                await other.execute("SELECT 1 FROM horsies_tasks WHERE id = %s FOR UPDATE", [ids["locked"]])
            elif ctx.job.task_name == "reclaimed":
                await db.execute("UPDATE horsies_tasks SET claim_seq = 2 WHERE id = %s", [ids["reclaimed"]])

        try:
            result = await asyncio.wait_for(sweep(pool, asker=answering(decide)), 20)
        finally:
            await other.rollback()
    assert result == SweepStaleWorkersResult(1, ["w1"], lock_acquired=True)
    statuses = {name: (await task_row(db, task_id))["status"] for name, task_id in ids.items()}
    assert statuses == {"finished": "COMPLETED", "locked": "RUNNING", "reclaimed": "RUNNING", "left": "PENDING"}
    assert [len(await attempts_of(db, task_id)) for task_id in ids.values()] == [1, 0, 0, 1]


@pytest.mark.parametrize("is_registered", [True, False])
async def test_r44_a_worker_that_comes_back_while_the_hooks_are_asked_keeps_what_it_has(
    db: Db, pool: Pool, is_registered: bool
) -> None:
    if is_registered:
        await dead_worker(db)
    task_id = await interrupted(db)

    async def decide(ctx: JobRecovery) -> None:
        await db.execute(
            "INSERT INTO horsies_workers (worker_id, sweeping) VALUES ('w1', TRUE)"
            " ON CONFLICT (worker_id) DO UPDATE SET last_heartbeat_at = now()"
        )

    assert await sweep(pool, asker=answering(decide)) == SweepStaleWorkersResult(lock_acquired=True)
    assert (await task_row(db, task_id))["status"] == "RUNNING"
    assert await workers_left(db) == ["w1"]


async def test_r74_what_the_hooks_have_no_time_for_waits_for_the_next_sweep(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    ids = [await interrupted(db, claimed_at=f"2020-01-0{n}") for n in (1, 2)]
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at,"
        " recovery_enrolled) SELECT n, 't', 'CLAIMED', TRUE, 'w1', '2020-02-01', TRUE FROM generate_series(1, 600) AS n"
    )
    hooks = HookRegistry()
    calls: list[int] = []

    @hooks.on(JobRecovery)
    async def slow(ctx: JobRecovery) -> None:
        await asyncio.sleep(0.3)

    class Hasty(InProcess):
        async def decide(self, jobs: Any, **more: Any) -> Any:
            calls.append(len(jobs))
            return await super().decide(jobs, **{**more, "within_s": 0.2})

    result = await sweep(pool, asker=Hasty(hooks))
    assert result == SweepStaleWorkersResult(1, ["w1"], deferred_count=499, lock_acquired=True)
    assert calls == [500]  # nobody is asked about the rest
    assert [(await task_row(db, task_id))["status"] for task_id in ids] == ["PENDING", "RUNNING"]
    assert (await sweep(pool)).recovered_count == 601


# Events


async def test_r75_events_follow_the_commit(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    await dead_worker(db, "idle")
    running, claimed = await interrupted(db, retry_count=1), await interrupted(db, CLAIMED)
    skipped = await interrupted(db, task_name="skip")
    hooks = HookRegistry()
    told: list[tuple[Any, ...]] = []

    @hooks.on(JobRecovery)
    def decide(ctx: JobRecovery) -> JobRecoveryResult | None:
        assert (ctx.worker_id, ctx.previous_worker_id, ctx.reason) == ("me", "w1", "WORKER_CRASHED")
        return JobRecoveryResult.Skip if ctx.job.task_name == "skip" else None

    @hooks.on(JobInterrupted)
    async def one(event: JobInterrupted) -> None:
        status = (await task_row(db, event.job.id))["status"]  # seen from another session
        told.append((event.job.id, event.job.attempts, event.worker_id, event.reason, status))

    @hooks.on(WorkerRecovered)
    def all_of_them(event: WorkerRecovered) -> None:
        told.append((event.worker_id, event.dead_worker_ids, event.jobs_recovered))

    await sweep(pool, asker=InProcess(hooks))
    assert sorted(told[:2]) == sorted(
        [(running, 2, "w1", "WORKER_CRASHED", "PENDING"), (claimed, 0, "w1", "WORKER_CRASHED", "PENDING")]
    )
    assert told[2:] == [("me", ["idle", "w1"], 2)]
    assert skipped not in [event[0] for event in told]


async def test_r75_nothing_is_told_of_a_sweep_that_found_nobody(db: Db, pool: Pool) -> None:
    await given_worker(db, "alive", sweeping=True)
    hooks = HookRegistry()
    told: list[Any] = []
    hooks.on(WorkerRecovered, told.append)
    await sweep(pool, asker=InProcess(hooks))
    assert told == []


# Known deaths, and whom nobody swept


async def test_r100_a_certain_death_is_held_up_by_nothing(db: Db, pool: Pool) -> None:
    resilient = Jsonb({"infrastructure_resilient": True})
    await given_worker(db, "w1", sweeping=True)  # heard of just now
    ids = [await interrupted(db, finalizing_at=datetime.now(UTC), flags=resilient), await interrupted(db, CLAIMED)]
    await given_heartbeat(db, ids[0], "runner")
    other = await interrupted(db, claimed_by_worker_id="w2")
    asked: list[str] = []
    asker = answering(lambda ctx: asked.append(ctx.job.id))
    result = await sweep_workers(pool, ["w1"], WorkerRecoveryConfig(), asker, me="me")
    assert result == SweepStaleWorkersResult(2, ["w1"], lock_acquired=True)
    assert sorted(asked) == sorted(ids)
    assert [(await task_row(db, task_id))["status"] for task_id in (*ids, other)] == ["PENDING", "PENDING", "RUNNING"]
    assert await workers_left(db) == []


async def test_r100_what_is_spared_keeps_its_worker_registered(db: Db, pool: Pool) -> None:
    await given_worker(db, "w1", sweeping=True)
    alive, gone = await interrupted(db, worker_pid=1), await interrupted(db, worker_pid=2)
    config = WorkerRecoveryConfig()
    result = await sweep_workers(pool, ["w1"], config, NoHooks(), me="me", spare=lambda task: task.worker_pid == 1)
    assert result.recovered_count == 1
    assert [(await task_row(db, task_id))["status"] for task_id in (alive, gone)] == ["RUNNING", "PENDING"]
    assert await workers_left(db) == ["w1"]
    assert (await sweep_workers(pool, ["w1"], config, NoHooks(), me="me")).recovered_count == 1
    assert await workers_left(db) == []


async def test_r100_a_certain_death_is_over_when_the_hooks_have_no_time_for_more(db: Db, pool: Pool) -> None:
    """What is left are orphans, for the next sweep."""
    await given_worker(db, "w1", sweeping=True)
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at,"
        " recovery_enrolled) SELECT n, 't', 'CLAIMED', TRUE, 'w1', '2020-02-01', TRUE FROM generate_series(1, 600) AS n"
    )

    class Busy(InProcess):
        async def decide(self, jobs: Any, **more: Any) -> Any:
            return [None for _ in jobs]

    hooks = HookRegistry()
    hooks.on(JobRecovery, lambda ctx: None)
    result = await sweep_workers(pool, ["w1"], WorkerRecoveryConfig(), Busy(hooks), me="me")
    assert result == SweepStaleWorkersResult(0, ["w1"], deferred_count=500, lock_acquired=True)
    assert await workers_left(db) == []
    assert (await sweep(pool)).recovered_count == 600


async def test_r68_whom_no_sweeper_sweeps_is_swept_with_hooks_all_the_same(db: Db, pool: Pool) -> None:
    own = {"worker_recovery": {"sweep_threshold": 10_000, "heartbeat_interval": 1_000, "sweep_interval": 1_000}}
    now = datetime.now(UTC)
    for name, age in (("abandoned", 20), ("dead", 11)):
        heard = now - timedelta(seconds=age)
        await given_worker(db, name, sweeping=True, last_heartbeat_at=heard, recovery=Jsonb(own))
    ids = [await interrupted(db, claimed_by_worker_id=name) for name in ("abandoned", "dead")]
    asked: list[str] = []
    asker = answering(lambda ctx: asked.append(ctx.job.id))
    disabled = WorkerRecoveryConfig(enabled=False, recovery_delay=timedelta(seconds=5))
    result = await sweep_abandoned(pool, disabled, POLICY, asker, me="me")
    assert result == SweepStaleWorkersResult(1, ["abandoned"], lock_acquired=True)
    assert asked == [ids[0]]
    row = await task_row(db, ids[0])
    assert row["failed_reason"] == RECOVERED
    assert at(row, "enqueued_at") - at(row, "updated_at") >= timedelta(seconds=5)
    assert (await task_row(db, ids[1]))["status"] == "RUNNING"
    assert await workers_left(db) == ["dead"]


async def test_r96_everything_is_taken_from_exactly_these_workers(db: Db, pool: Pool) -> None:
    for name in ("w1", "w2"):
        await given_worker(db, name, sweeping=name == "w1")  # alive
    mine = [
        await interrupted(db),
        await interrupted(db, CLAIMED, recovery_enrolled=False),
        await interrupted(db, claimed_by_worker_id="unregistered", recovery_enrolled=False, finalizing_at=LONG_AGO),
    ]
    for task_id in mine:
        await given_heartbeat(db, task_id, "runner")
    other = await interrupted(db, claimed_by_worker_id="w2")
    async with db.transaction():  # a sweep that is under way holds nobody up
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [SWEEP_LOCK])
        assert await force_unlock(pool, ["w1", "unregistered", "w1"], WorkerRecoveryConfig(), me="me") == 3
    for task_id in mine:
        row = await task_row(db, task_id)
        assert (row["status"], row["failed_reason"]) == ("PENDING", RECOVERED)
        assert at(row, "enqueued_at") == at(row, "updated_at")
    assert (await task_row(db, other))["status"] == "RUNNING"
    assert await workers_left(db) == ["w2"]
    assert await force_unlock(pool, [], WorkerRecoveryConfig(), me="me") == 0


# The background service


class Pulse:
    """Says what it is told to say."""

    def __init__(self, *, may_judge: bool) -> None:
        self.is_sure = may_judge

    def may_judge(self) -> bool:
        return self.is_sure

    async def may_still_judge(self, server_time: object) -> bool:
        return self.is_sure


async def test_r23_a_sweeper_that_has_lost_the_database_itself_judges_nobody(db: Db, pool: Pool) -> None:
    await dead_worker(db)
    task_id = await interrupted(db)
    pulse = Pulse(may_judge=False)
    sweeper = Sweeper(pool, WorkerRecoveryConfig(enabled=True), POLICY, NoHooks(), "me", pulse)
    await sweeper.step()
    assert (await task_row(db, task_id))["status"] == "RUNNING"
    pulse.is_sure = True
    await sweeper.step()
    assert (await task_row(db, task_id))["status"] == "PENDING"


async def test_r74_a_sweep_that_fails_in_our_own_code_does_not_stop_the_worker(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """The database being away is told to the service that runs it; anything else is logged."""
    await dead_worker(db)
    await interrupted(db)

    class Broken(NoHooks):
        problem: Exception = LookupError("broken")

        async def recovered(self, **more: Any) -> None:
            raise self.problem

    asker = Broken()
    sweeper = Sweeper(pool, WorkerRecoveryConfig(enabled=True), POLICY, asker, "me", Pulse(may_judge=True))
    await sweeper.step()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["the sweep failed"]
    await interrupted(db)
    asker.problem = errors.AdminShutdown("going down")
    with pytest.raises(errors.AdminShutdown):
        await sweeper.step()
