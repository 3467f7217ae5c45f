"""One tick of the reaper on a real database. Who counts as stale is tried statement by statement in `tests/store`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.db.pool import Pool
from horsies.core.hooks import HookRegistry, JobInterrupted, JobRecovery, JobRecoveryResult
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.recovery import unknown_names
from horsies.core.recovery.hooks import InProcess, NoHooks
from horsies.core.recovery.reaper import FORGET_EVERY, PRUNE_EVERY, Reaper
from horsies.core.store import caps, workers
from horsies.core.store.names import Known
from horsies.core.types.status import TaskStatus
from horsies.core.worker.fence import Pulse
from tests.audit import audit, transactions
from tests.factories import (
    given_attempt,
    given_heartbeat,
    given_node,
    given_task,
    given_worker,
    given_workflow,
    task_row,
)
from tests.recovery_support import LONG_AGO, hasty, options_with

PENDING, CLAIMED, RUNNING = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING
CRASH_IS_RETRIED = options_with("WORKER_CRASHED")

Db = AsyncConnection[Any]


@pytest.fixture
def db(clean_db: Db) -> Db:
    return clean_db


@pytest.fixture
def pool(clean_pool: Pool) -> Pool:
    return clean_pool


def a_reaper(pool: Pool, *, hooks: HookRegistry | None = None, pulse: Pulse | None = None, **more: Any) -> Reaper:
    sweeping = more.pop("sweeping", WorkerRecoveryConfig())
    recovery = hasty(**more.pop("recovery", {}))
    asker = NoHooks() if hooks is None else InProcess(hooks)
    return Reaper(pool, recovery, sweeping, asker, "me", pulse or Pulse(2.0), **more)


async def stale(db: Db, status: TaskStatus, **columns: Any) -> str:
    times = {"claimed_at": LONG_AGO, "started_at": LONG_AGO if status is RUNNING else None}
    return await given_task(db, status=status, **{**times, **columns})


async def many_stale(db: Db, status: TaskStatus, count: int) -> None:
    """Tasks of worker `w1`; the higher the number in the id, the older."""
    await db.execute(
        """
        INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq,
                                   claimed_at, started_at)
        SELECT 't' || lpad(n::text, 8, '0'), 't', %(status)s::text, TRUE, 'w1', 1, at,
               CASE %(status)s::text WHEN 'RUNNING' THEN at END
        FROM generate_series(1, %(count)s) AS n, LATERAL (SELECT now() - n * interval '1 min') AS _(at)
        """,
        {"status": status.value, "count": count},
    )


async def statuses(db: Db) -> dict[str, int]:
    cursor = await db.execute("SELECT status, count(*) FROM horsies_tasks GROUP BY status")
    return dict(await cursor.fetchall())


async def status(db: Db, task_id: str) -> str:
    return str((await task_row(db, task_id))["status"])


async def attempts(db: Db, task_id: str) -> list[tuple[Any, ...]]:
    cursor = await db.execute(
        "SELECT attempt, outcome, will_retry, error_code, worker_id FROM horsies_task_attempts WHERE task_id = %s",
        [task_id],
    )
    return await cursor.fetchall()


def test_r16_the_passes_and_their_order(pool: Pool) -> None:
    names = [name for name, _ in a_reaper(pool).passes]
    assert names == [
        "expiry", "stale claims", "stale runs", "abandoned workers", "nodes of workflows", "ends of workflows",
        "heartbeats", "doorbell", "caps", "gauges",
    ]  # fmt: skip


async def test_r16_l07_r81_one_tick_makes_every_pass(db: Db, pool: Pool) -> None:
    overdue = await given_task(db, good_until=LONG_AGO)
    claimed, running = await stale(db, CLAIMED), await stale(db, RUNNING)
    await given_worker(db, "abandoned", sweeping=True, last_heartbeat_at=LONG_AGO)
    enrolled = await stale(db, RUNNING, claimed_by_worker_id="abandoned", recovery_enrolled=True)
    await given_heartbeat(db, "gone", "runner", sent_at=LONG_AGO)
    await db.execute("INSERT INTO horsies_waiting VALUES ('queue:default', 'dead', now() - interval '1 h')")
    await a_reaper(pool).tick()
    assert [await status(db, task_id) for task_id in (overdue, claimed, running, enrolled)] == [
        "EXPIRED", "PENDING", "FAILED", "PENDING",
    ]  # fmt: skip
    assert [
        name for name in ("horsies_heartbeats", "horsies_waiting", "horsies_workers") if await is_filled(db, name)
    ] == []


async def test_r16_d56_a_tick_corrects_the_count_of_a_queue_with_a_cap(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    async with pool.connection() as conn:
        await caps.start_counting(conn, ["default", "other"])
    await db.execute("ALTER TABLE horsies_tasks DISABLE TRIGGER USER")
    await given_task(db, status=RUNNING, claimed=True, claimed_by_worker_id="me", started_at=datetime.now(UTC))
    await db.execute("ALTER TABLE horsies_tasks ENABLE TRIGGER USER")
    reaper = a_reaper(pool)
    await reaper.check_counts()
    assert "of queue 'default' was wrong, by -1 in flight and -1 of them running" in caplog.text
    caplog.clear()
    await reaper.check_counts()
    assert caplog.text == ""
    counted = await db.execute(
        "SELECT q, f.* FROM unnest(%s::text[]) q, horsies_in_flight(q) f", [["default", "other"]]
    )
    assert await counted.fetchall() == [("default", 1, 1), ("other", 0, 0)]


@pytest.mark.parametrize(
    ("every", "most", "table", "outdated"),
    [
        (FORGET_EVERY, workers.FORGOTTEN, "horsies_waiting", "'queue:default', 'dead' || n, now() - interval '1 year'"),
        (PRUNE_EVERY, unknown_names.PRUNED, "horsies_left_tasks", "'t' || n, now() - interval '1 year'"),
    ],
)
async def test_r16_what_is_outdated_and_does_no_harm_is_deleted_at_some_ticks_and_then_all_of_it(
    db: Db, pool: Pool, every: int, most: int, table: str, outdated: str
) -> None:
    async def given(rows: int) -> None:
        await db.execute(f"INSERT INTO {table} SELECT {outdated} FROM generate_series(1, {rows}) AS n".encode())  # noqa: S608

    async def left() -> int:
        [(count,)] = await (await db.execute(f"SELECT count(*) FROM {table}".encode())).fetchall()  # noqa: S608
        return int(count)

    unknown = unknown_names.UnknownNames(pool, ["default"], timedelta(hours=1), lambda: Known(frozenset(), "h"))
    reaper = a_reaper(pool, unknown=unknown)
    await given(2 * most + 1)
    await reaper.tick()
    assert await left() == 0
    await given(1)
    counts = []
    for _ in range(every):
        await reaper.tick()
        counts.append(await left())
    assert counts == [1] * (every - 1) + [0]


async def is_filled(db: Db, table: str) -> bool:
    return (await (await db.execute(f"SELECT 1 FROM {table}".encode())).fetchone()) is not None  # noqa: S608


async def test_r16_a_pass_that_fails_is_logged_and_does_not_stop_the_next(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    overdue, claimed = await given_task(db, good_until=LONG_AGO), await stale(db, CLAIMED)
    await db.execute("INSERT INTO horsies_waiting VALUES ('queue:default', 'dead', now() - interval '1 h')")
    await given_heartbeat(db, "a task", "runner", sent_at=LONG_AGO)
    await given_node(
        db, await given_workflow(db, open_nodes=1), status="RUNNING"
    )  # without one, the pass over nodes looks no further
    await db.execute("ALTER TABLE horsies_workers RENAME TO elsewhere")
    reaper = a_reaper(pool)
    try:
        await reaper.tick()
    finally:
        await db.execute("ALTER TABLE elsewhere RENAME TO horsies_workers")
    assert await status(db, overdue) == "EXPIRED"
    assert not await is_filled(db, "horsies_waiting")
    failed = [name for name, _ in reaper.passes if f"pass over {name} failed" in caplog.text]
    assert failed == ["stale claims", "stale runs", "abandoned workers", "nodes of workflows", "heartbeats"]
    assert await status(db, claimed) == "CLAIMED"
    await reaper.tick()
    assert await status(db, claimed) == "PENDING"


async def test_r16_a_mistake_of_ours_does_not_stop_the_next_pass_either(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Pulse):
        def may_judge(self) -> bool:
            raise ZeroDivisionError

    await given_heartbeat(db, "gone", "runner", sent_at=LONG_AGO)
    await a_reaper(pool, pulse=Broken(1.0)).tick()
    assert not await is_filled(db, "horsies_heartbeats")
    assert "ZeroDivisionError" in caplog.text


async def test_r17_a_pass_works_in_steps_of_at_most_500_rows(db: Db, pool: Pool) -> None:
    await many_stale(db, CLAIMED, 1_201)
    await audit(db, horsies_tasks="UPDATE")
    await a_reaper(pool).tick()
    assert await transactions(db) == [500, 500, 201]
    assert await statuses(db) == {"PENDING": 1_201}


async def test_r17_so_do_the_retries_and_the_expiry(db: Db, pool: Pool) -> None:
    await many_stale(db, RUNNING, 501)
    await db.execute("UPDATE horsies_tasks SET task_options = %s, max_retries = 3", [CRASH_IS_RETRIED])
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, good_until) SELECT n, 't', now() FROM generate_series(1, 501) AS n"
    )
    await audit(db, horsies_tasks="UPDATE")
    await a_reaper(pool).tick()
    assert await transactions(db) == [500, 1, 500, 1]
    assert await statuses(db) == {"PENDING": 501, "EXPIRED": 501}


async def test_r17_a_pass_that_has_used_its_time_goes_on_in_the_next_tick_with_the_oldest_done(
    db: Db, pool: Pool
) -> None:
    await many_stale(db, CLAIMED, 700)
    reaper = a_reaper(pool, pass_s=0.0)
    await reaper.tick()
    cursor = await db.execute("SELECT min(id), count(*) FROM horsies_tasks WHERE status = 'PENDING'")
    assert await cursor.fetchone() == ("t00000201", 500)
    await reaper.tick()
    assert await statuses(db) == {"PENDING": 700}


async def test_r17_one_task_that_the_database_refuses_does_not_keep_the_others(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    await many_stale(db, RUNNING, 40)
    await db.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'never' USING ERRCODE = '22000'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON horsies_tasks
            FOR EACH ROW WHEN (NEW.id = 't00000007') EXECUTE FUNCTION refuse()
        """
    )
    await a_reaper(pool).tick()
    assert await statuses(db) == {"FAILED": 39, "RUNNING": 1}
    assert "refuses to recover a task" in caplog.text


@pytest.mark.parametrize("switch", ["auto_requeue_stale_claimed", "auto_fail_stale_running"])
async def test_r18_each_switch_leaves_its_tasks_alone(db: Db, pool: Pool, switch: str) -> None:
    claimed, running = await stale(db, CLAIMED), await stale(db, RUNNING)
    await a_reaper(pool, recovery={switch: False}).tick()
    left = {"auto_requeue_stale_claimed": ("CLAIMED", "FAILED"), "auto_fail_stale_running": ("PENDING", "RUNNING")}
    assert (await status(db, claimed), await status(db, running)) == left[switch]


async def test_r18_with_both_switches_off_the_other_passes_still_run(db: Db, pool: Pool) -> None:
    claimed, running = await stale(db, CLAIMED), await stale(db, RUNNING)
    overdue = await given_task(db, good_until=LONG_AGO)
    enrolled = await stale(db, RUNNING, claimed_by_worker_id="abandoned", recovery_enrolled=True)
    await given_heartbeat(db, "gone", "runner", sent_at=LONG_AGO)
    off = {"auto_requeue_stale_claimed": False, "auto_fail_stale_running": False}
    await a_reaper(pool, recovery=off).tick()
    found = [await status(db, task_id) for task_id in (claimed, running, overdue, enrolled)]
    assert found == ["CLAIMED", "RUNNING", "EXPIRED", "PENDING"]
    assert not await is_filled(db, "horsies_heartbeats")


async def test_r19_a_stale_claim_ends_and_nothing_else_changes(db: Db, pool: Pool) -> None:
    task_id = await stale(
        db, CLAIMED, retry_count=1, max_retries=3, enqueued_at=LONG_AGO, claim_expires_at=LONG_AGO, claim_seq=4
    )
    before = await task_row(db, task_id)
    await a_reaper(pool).tick()
    after = await task_row(db, task_id)
    ended = {"status": "PENDING", "is_waiting": True, "claimed": False, "claimed_at": None} | {
        "claimed_by_worker_id": None, "claim_expires_at": None, "updated_at": after["updated_at"],
    }  # fmt: skip
    assert after == before | ended
    assert await attempts(db, task_id) == []


async def test_r19_a_stale_claim_past_its_deadline_is_expired(db: Db, pool: Pool) -> None:
    task_id = await stale(db, CLAIMED, good_until=LONG_AGO)
    await a_reaper(pool).tick()
    row = await task_row(db, task_id)
    assert (row["status"], row["error_code"], row["claimed"]) == ("EXPIRED", "TASK_EXPIRED", False)
    assert await attempts(db, task_id) == []


async def test_r20_a_stale_run_is_retried_where_its_policy_says_so(db: Db, pool: Pool) -> None:
    task_id = await stale(db, RUNNING, task_options=CRASH_IS_RETRIED, max_retries=3, retry_count=1)
    await given_attempt(db, task_id, attempt=1)
    await a_reaper(pool).tick()
    row = await task_row(db, task_id)
    assert (row["status"], row["retry_count"], row["claimed"], row["started_at"]) == ("PENDING", 2, False, None)
    assert row["next_retry_at"] == row["enqueued_at"]
    waits = datetime.fromisoformat(row["next_retry_at"]) - datetime.fromisoformat(row["updated_at"])
    assert timedelta(seconds=45) <= waits <= timedelta(seconds=75)  # with jitter
    assert (await attempts(db, task_id))[1:] == [(2, "WORKER_FAILURE", True, "WORKER_CRASHED", "w1")]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"task_options": CRASH_IS_RETRIED, "max_retries": 3, "retry_count": 3},
        {"task_options": CRASH_IS_RETRIED, "max_retries": 3, "good_until": "2100-01-01", "retry_count": 3},
        {"task_options": options_with("TASK_TIMEOUT"), "max_retries": 3},
        {"task_options": "not JSON", "max_retries": 3},
    ],
    ids=["no policy", "none left", "none left, with a deadline", "another code", "unreadable"],
)
async def test_r20_in_every_other_case_it_fails(db: Db, pool: Pool, columns: dict[str, Any]) -> None:
    task_id = await stale(db, RUNNING, **columns)
    await a_reaper(pool).tick()
    row = await task_row(db, task_id)
    assert (row["status"], row["error_code"], row["claimed"]) == ("FAILED", "WORKER_CRASHED", False)
    assert row["failed_at"] is not None
    attempt = columns.get("retry_count", 0) + 1
    assert await attempts(db, task_id) == [(attempt, "WORKER_FAILURE", False, "WORKER_CRASHED", "w1")]


async def test_r20_a_retry_that_would_come_after_the_deadline_is_a_failure(db: Db, pool: Pool) -> None:
    task_id = await stale(db, RUNNING, task_options=CRASH_IS_RETRIED, max_retries=3)
    await db.execute("UPDATE horsies_tasks SET good_until = now() + interval '10 s'")
    await a_reaper(pool).tick()
    assert await status(db, task_id) == "FAILED"


async def test_r21_the_record_names_the_old_worker_its_process_and_the_silence(db: Db, pool: Pool) -> None:
    task_id = await stale(db, RUNNING, claimed_by_worker_id="host:7:abc", worker_hostname="host", worker_pid=77)
    await db.execute(
        "INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)"
        " VALUES (%s, 's', 'runner', now() - interval '9 s')",
        [task_id],
    )
    await a_reaper(pool).tick()
    row = await task_row(db, task_id)
    error = json.loads(row["result"])["err"]
    assert error["error_code"] == {"__builtin_task_code__": "WORKER_CRASHED"}
    assert {name: error["data"][name] for name in ("worker_id", "worker_hostname", "worker_pid")} == {
        "worker_id": "host:7:abc",
        "worker_hostname": "host",
        "worker_pid": 77,
    }
    silence = datetime.fromisoformat(row["failed_at"]) - datetime.fromisoformat(error["data"]["last_heartbeat"])
    said = re.search(r"worker host:7:abc, process 77 on host, silent for (\d+\.\d) s$", row["failed_reason"])
    # It was judged a moment before it was written.
    assert said is not None and 9.0 <= float(said[1]) <= silence.total_seconds() + 0.1
    cursor = await db.execute("SELECT failed_reason FROM horsies_task_attempts")
    assert await cursor.fetchall() == [(row["failed_reason"],)]


async def test_r12_r13_r14_who_is_heard_of_is_left_alone_however_long_it_runs(db: Db, pool: Pool) -> None:
    claimed, running = await stale(db, CLAIMED), await stale(db, RUNNING)
    await given_heartbeat(db, claimed, "claimer")
    await given_heartbeat(db, running, "runner")
    ending = await stale(db, RUNNING)
    await db.execute("UPDATE horsies_tasks SET finalizing_at = now() WHERE id = %s", [ending])
    await a_reaper(pool).tick()
    assert await statuses(db) == {"CLAIMED": 1, "RUNNING": 2}


async def test_r23_who_has_lost_the_database_judges_nobody_by_silence(db: Db, pool: Pool) -> None:
    now = 100.0
    pulse = Pulse(2.0, clock=lambda: now)
    claimed, running = await stale(db, CLAIMED), await stale(db, RUNNING)
    enrolled = await stale(db, RUNNING, claimed_by_worker_id="abandoned", recovery_enrolled=True)
    overdue = await given_task(db, good_until=LONG_AGO)
    reaper = a_reaper(pool, pulse=pulse)
    pulse.failed()
    await reaper.tick()
    assert await statuses(db) == {"CLAIMED": 1, "RUNNING": 2, "EXPIRED": 1}
    assert await status(db, overdue) == "EXPIRED"  # that is no matter of silence
    pulse.answered()
    now += 1.9
    await reaper.tick()
    assert await statuses(db) == {"CLAIMED": 1, "RUNNING": 2, "EXPIRED": 1}
    now += 0.2
    await reaper.tick()
    assert [await status(db, task_id) for task_id in (claimed, running, enrolled)] == ["PENDING", "FAILED", "PENDING"]


async def test_r23_who_loses_it_in_the_middle_of_a_pass_stops_there(db: Db, pool: Pool) -> None:
    await many_stale(db, RUNNING, 501)
    pulse, hooks = Pulse(2.0), HookRegistry()

    @hooks.on(JobInterrupted)
    async def heard(event: JobInterrupted) -> None:
        pulse.failed()

    await a_reaper(pool, pulse=pulse, hooks=hooks).tick()
    assert await statuses(db) == {"FAILED": 500, "RUNNING": 1}


async def heard_of(db: Db, worker_id: str, seconds: float) -> None:
    """The worker's last word was that long ago."""
    text = "UPDATE horsies_workers SET last_heartbeat_at = now() - %s * interval '1 s' WHERE worker_id = %s"
    await db.execute(text, [seconds, worker_id])


async def silent(db: Db, status: TaskStatus, seconds: float, **columns: Any) -> str:
    task_id = await stale(db, status, **columns)
    await db.execute(
        "UPDATE horsies_tasks SET claimed_at = now() - %(s)s * interval '1 s',"
        " started_at = CASE status WHEN 'RUNNING' THEN now() - %(s)s * interval '1 s' END WHERE id = %(id)s",
        {"s": seconds, "id": task_id},
    )
    return task_id


async def test_r65_r66_an_enrolled_task_is_the_reapers_only_if_its_worker_outlived_the_silence(
    db: Db, pool: Pool
) -> None:
    for name, seconds in (("alive", 0), ("silent", 30)):
        await given_worker(db, name, sweeping=True)
        await heard_of(db, name, seconds)
    ids = {
        owner: await silent(db, RUNNING, 20, claimed_by_worker_id=owner, recovery_enrolled=True)
        for owner in ("alive", "silent", "gone")
    }
    await a_reaper(pool).tick()
    found = {owner: await status(db, task_id) for owner, task_id in ids.items()}
    assert found == {"alive": "FAILED", "silent": "RUNNING", "gone": "RUNNING"}


async def test_r68_a_dead_enrolled_worker_that_nobody_sweeps_is_swept_with_the_hooks_of_this_app(
    db: Db, pool: Pool
) -> None:
    own = {"sweep_interval": 1_000, "sweep_threshold": 2_000, "heartbeat_interval": 1_000}
    ids = {}
    for name, seconds in (("long dead", 8), ("just dead", 3)):
        await given_worker(db, name, sweeping=True, recovery=Jsonb({"worker_recovery": own}))
        await heard_of(db, name, seconds)
        mine = {"claimed_by_worker_id": name, "recovery_enrolled": True, "task_name": name}
        ids[name] = await silent(db, RUNNING, seconds, **mine)
    hooks, asked = HookRegistry(), []

    @hooks.on(JobRecovery)
    async def decide(question: JobRecovery) -> JobRecoveryResult:
        asked.append((question.job.task_name, question.worker_id, question.previous_worker_id))
        return JobRecoveryResult.Default

    # This worker has worker recovery switched off.
    await a_reaper(pool, hooks=hooks).tick()
    assert asked == [("long dead", "me", "long dead")]
    found = {name: await status(db, task_id) for name, task_id in ids.items()}
    assert found == {"long dead": "PENDING", "just dead": "RUNNING"}
    row = await task_row(db, ids["long dead"])
    assert (row["retry_count"], row["failed_reason"]) == (0, "Job recovered after worker interruption")


async def test_r75_observers_hear_of_crash_recoveries_after_the_commit(db: Db, pool: Pool, module_url: str) -> None:
    failed = await stale(db, RUNNING, claimed_by_worker_id="w1", task_name="failed", retry_count=0)
    retried = await stale(db, RUNNING, claimed_by_worker_id="w2", task_options=CRASH_IS_RETRIED, max_retries=3)
    claimed = await stale(db, CLAIMED, claimed_by_worker_id="w3")
    hooks, heard = HookRegistry(), []

    @hooks.on(JobInterrupted)
    def hear(event: JobInterrupted) -> None:
        with psycopg.connect(module_url, autocommit=True) as conn:  # what others see by now
            [(now,)] = conn.execute("SELECT status FROM horsies_tasks WHERE id = %s", [event.job.id])
        heard.append((event.job.id, event.worker_id, event.reason.value, event.job.status.value, now))
        raise ValueError("an observer's own trouble")

    await a_reaper(pool, hooks=hooks).tick()
    assert sorted(heard) == sorted(
        [
            (failed, "w1", "WORKER_CRASHED", "RUNNING", "FAILED"),
            (retried, "w2", "WORKER_CRASHED", "RUNNING", "PENDING"),
        ]
    )
    assert await status(db, claimed) == "PENDING"


async def test_r63_a_worker_with_longer_thresholds_is_not_judged_by_ours(db: Db, pool: Pool) -> None:
    patient = {"running_stale_threshold_ms": 600_000, "claimed_stale_threshold_ms": 600_000}
    await given_worker(db, "w1", recovery=Jsonb(patient))
    for of in (CLAIMED, RUNNING):
        await silent(db, of, 60)
    await a_reaper(pool).tick()
    assert await statuses(db) == {"CLAIMED": 1, "RUNNING": 1}
