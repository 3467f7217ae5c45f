"""One look for dead workers (R-100, R-103), on a real database and with real processes; the rest is rows."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.db.connections import make_pool
from horsies.core.db.pool import Pool
from horsies.core.hooks import Decision, FailureReason, Job, JobInterrupted, JobRecovery, JobRecoveryResult
from horsies.core.loop import Service
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig, WorkerResilienceConfig
from horsies.core.models.tasks import RetryPolicy, TaskOptions
from horsies.core.recovery import start_journal
from horsies.core.recovery.dead_workers import DeadWorkers, look_at, process_start
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.start_journal import Journal, Notebook
from horsies.core.store import workers
from horsies.core.tasks.moves import Claim
from horsies.core.types.status import TaskStatus
from horsies.core.worker.background import harmless
from horsies.core.worker.config import Identity, identify
from horsies.core.worker.in_hand import HeldTask
from tests.conftest import fresh_database
from tests.factories import given_heartbeat, given_task, given_worker, task_row
from tests.support import eventually

Db = AsyncConnection[Any]

CLAIMED, RUNNING = TaskStatus.CLAIMED, TaskStatus.RUNNING
AGAIN = TaskOptions(retry_policy=RetryPolicy.fixed([60], auto_retry_for=["WORKER_CRASHED"], jitter=False)).to_json()


@dataclass
class Pulse:
    """Whether this worker may judge by silence is somebody else's business."""

    may: bool = True

    def may_judge(self) -> bool:
        return self.may

    async def may_still_judge(self, server_time: object) -> bool:
        return self.may


@dataclass
class Listening(NoHooks):
    """Hooks that answer the same to every question, and remember what they were told."""

    answer: Decision = JobRecoveryResult.Default
    asked: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def has(self, event: type[Any]) -> bool:
        return event in (JobRecovery, JobInterrupted)

    async def decide(self, jobs: Sequence[Job], **_: Any) -> list[Decision | None]:
        self.asked += [job.id for job in jobs]
        return [self.answer for _ in jobs]

    async def interrupted(self, jobs: Sequence[Job], *, reason: FailureReason) -> None:
        self.told += [f"{job.id} of {job.worker_id}" for job in jobs]


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals of our own, and short pauses."""
    monkeypatch.setenv(start_journal.VARIABLE, str(tmp_path / "runtime"))
    monkeypatch.setattr("horsies.core.recovery.dead_workers.SOON_S", 0.01)


@pytest.fixture(scope="module")
def module_url(server_url: str, template: str) -> Iterator[str]:
    """A database that these tests share."""
    with fresh_database(server_url, template) as url:
        yield url


@pytest.fixture
async def database_url(module_url: str) -> AsyncIterator[str]:
    yield module_url
    async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
        await conn.execute("DELETE FROM horsies_tasks")
        await conn.execute("DELETE FROM horsies_workers")
        await conn.execute("DELETE FROM horsies_heartbeats")


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = make_pool(PostgresConfig(database_url=database_url), max_size=4)
    yield pool
    await pool.close()


@pytest.fixture
def me() -> Identity:
    return identify()


@pytest.fixture
def look(pool: Pool, me: Identity) -> Any:
    """Makes an `Evidence` of this process and lets it look as often as it is told."""

    async def look(times: int = 1, **settings: Any) -> DeadWorkers:
        found = evidence(pool, settings.pop("me", me), **settings)
        for _ in range(times):
            await found.look()
        return found

    return look


def evidence(pool: Pool, me: Identity, *, asker: Any = None, pulse: Any = None, **settings: Any) -> DeadWorkers:
    sweeping = settings.pop("sweeping", WorkerRecoveryConfig(recovery_delay=30))
    recovery = RecoveryConfig(**settings)
    return DeadWorkers(pool, pool, me, recovery, sweeping, asker or NoHooks(), pulse or Pulse())


def ended() -> tuple[int, int]:
    """A pid that no process has any more, and when the one that had it began."""
    with sleeping() as (pid, start):
        pass
    return pid, start


@contextmanager
def sleeping() -> Iterator[tuple[int, int]]:
    process = subprocess.Popen(["sleep", "60"])
    start = process_start(process.pid)
    assert start is not None
    try:
        yield process.pid, start
    finally:
        process.kill()
        process.wait()


async def given_dead(db: Db, me: Identity, worker_id: str = "w1", *, silent_s: float = 0, **columns: Any) -> int:
    """A registered worker of this host whose process has ended; returns the pid it had."""
    pid, start = ended()
    row = {
        "hostname": me.hostname,
        "boot_id": me.boot_id,
        "pid_namespace": me.pid_namespace,
        "pid": pid,
        "process_start": start,
        "liveness_key": replace(me, worker_id=worker_id).liveness_key,
        "recovery": Jsonb({"worker_recovery": {"heartbeat_interval": 30_000}}),
    }
    await given_worker(db, worker_id, **{**row, **columns})
    await db.execute(
        "UPDATE horsies_workers SET last_heartbeat_at = now() - make_interval(secs => %s) WHERE worker_id = %s",
        [silent_s, worker_id],
    )
    return pid


async def given_running(db: Db, pid: int, worker_id: str = "w1", **columns: Any) -> str:
    row = {"claimed_by_worker_id": worker_id, "worker_pid": pid, "worker_hostname": "here"}
    return await given_task(db, status=RUNNING, **{**row, "claimed_at": "now", "started_at": "now", **columns})


async def given_claimed(db: Db, worker_id: str = "w1", **columns: Any) -> str:
    return await given_task(db, status=CLAIMED, claimed_by_worker_id=worker_id, claimed_at="now", **columns)


async def states(db: Db, *task_ids: str) -> list[str]:
    return [(await task_row(db, task_id))["status"] for task_id in task_ids]


async def attempts(db: Db, task_id: str) -> list[tuple[str, bool]]:
    query = "SELECT outcome, will_retry FROM horsies_task_attempts WHERE task_id = %s ORDER BY attempt"
    return await (await db.execute(query, [task_id])).fetchall()


async def registered(db: Db) -> list[str]:
    return [row[0] for row in await (await db.execute("SELECT worker_id FROM horsies_workers")).fetchall()]


async def test_w60_a_sweep_that_keeps_the_connection_while_it_asks_hooks_does_not_end_the_worker(
    db: Db, me: Identity, pool: Pool, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Evidence that has to wait for it tries again later: the database does answer."""
    await given_dead(db, me, sweeping=True)
    task = await given_claimed(db, recovery_enrolled=True)
    patient = make_pool(PostgresConfig(database_url=database_url, pool_timeout=1), max_size=1)
    look = DeadWorkers(pool, patient, me, RecoveryConfig(), WorkerRecoveryConfig(), NoHooks(), Pulse()).look

    async def has_gone_on() -> bool:
        return running.done() or await states(db, task) == ["PENDING"]

    service = Service("evidence", WorkerResilienceConfig(db_retry_max_attempts=1), harmless("evidence", look))
    async with patient.connection():
        running = asyncio.create_task(service.run())
        await eventually(lambda: "stayed busy" in caplog.text or running.done())
    try:
        await eventually(has_gone_on)
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.wait({running})
        await patient.close()


# Certain


async def test_r100_what_a_dead_worker_held_is_recovered_at_once(db: Db, me: Identity, look: Any) -> None:
    pid = await given_dead(db, me)
    claimed, failed = await given_claimed(db), await given_running(db, pid)
    again = await given_running(db, pid, task_options=AGAIN, max_retries=1)
    await look()
    assert await states(db, claimed, failed, again) == ["PENDING", "FAILED", "PENDING"]
    assert await attempts(db, claimed) == []
    assert await attempts(db, failed) == [("WORKER_FAILURE", False)]
    assert await attempts(db, again) == [("WORKER_FAILURE", True)]
    row = await task_row(db, failed)
    assert row["error_code"] == "WORKER_CRASHED" and "w1" in row["failed_reason"] and str(pid) in row["failed_reason"]
    assert (await task_row(db, again))["next_retry_at"] is not None


async def test_r100_a_worker_that_cannot_be_recovered_now_does_not_hold_up_the_others(
    db: Db, me: Identity, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody keeps the row of one locked, and a trigger refuses to delete that of another."""
    await db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE 'not with me'; END $$ LANGUAGE plpgsql;"
        "CREATE TRIGGER refuse BEFORE DELETE ON horsies_workers FOR EACH ROW WHEN (OLD.worker_id = 'w2')"
        " EXECUTE FUNCTION refuse()"
    )
    pool = make_pool(PostgresConfig(database_url=database_url), max_size=4, options="-c lock_timeout=100")
    found = evidence(pool, me)
    await given_dead(db, me, "w1")
    await given_dead(db, me, "w2")
    try:
        await found.look()
        async with await AsyncConnection.connect(database_url) as somebody:
            await somebody.execute("SELECT FROM horsies_workers WHERE worker_id = 'w1' FOR UPDATE")
            pid = await given_dead(db, me, "w3")
            task_id = await given_running(db, pid, "w3")
            await found.look()
            assert await states(db, task_id) == ["FAILED"]
        await found.look()
        assert await registered(db) == ["w2"] and "not with me" in caplog.text
    finally:
        await pool.close()
        await db.execute("DROP FUNCTION refuse CASCADE")


async def test_r100_then_its_row_is_deleted(db: Db, me: Identity, look: Any) -> None:
    pid = await given_dead(db, me)
    await given_running(db, pid)
    found = await look()
    assert await registered(db) == ["w1"]
    late = await given_running(db, pid)  # a start that was under way when the worker died
    await found.look()
    assert await states(db, late) == ["FAILED"]
    assert await registered(db) == []


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for journals that no other test uses."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv(start_journal.VARIABLE, str(tmp_path))


@pytest.mark.usefixtures("journals")
async def test_r100_between_two_questions_only_processes_are_looked_at_and_a_death_is_noticed(
    db: Db, pool: Pool, me: Identity
) -> None:
    found = evidence(pool, me)
    with sleeping() as (pid, start):
        await given_dead(db, me, pid=pid, process_start=start)
        await found.watch()
        await db.execute("ALTER TABLE horsies_workers RENAME TO elsewhere")
        try:
            await found.watch()  # it asks nobody
        finally:
            await db.execute("ALTER TABLE elsewhere RENAME TO horsies_workers")
        assert await registered(db) == ["w1"]
    await found.watch()
    await found.watch()
    assert await registered(db) == []


@pytest.mark.usefixtures("journals")
async def test_r100_a_worker_that_has_just_started_on_this_host_is_asked_for(db: Db, pool: Pool, me: Identity) -> None:
    """It makes its journal before it is registered; its neighbours ask until it is."""
    found = evidence(pool, me)
    await found.watch()
    await given_dead(db, me)
    await found.watch()
    assert await registered(db) == ["w1"], "nothing has happened here"
    await db.execute("DELETE FROM horsies_workers")
    journal = Journal("w1", None, 8)
    await found.watch()
    await given_dead(db, me)
    await found.watch()
    await found.watch()
    assert await registered(db) == []
    journal.remove()


async def test_r100_a_zombie_is_gone_and_a_reused_number_is_noticed(db: Db, me: Identity, look: Any) -> None:
    with sleeping() as (pid, other_start), sleeping() as (zombie, start):
        await given_dead(db, me, "zombie", pid=zombie, process_start=start)
        await given_dead(db, me, "reused", pid=pid, process_start=other_start - 1)
        await given_dead(db, me, "alive", pid=pid, process_start=other_start)
        tasks = [await given_claimed(db, worker_id) for worker_id in ("zombie", "reused", "alive")]
        os.kill(zombie, signal.SIGKILL)
        await eventually(lambda: look_at(zombie).has_ended)
        await look(3)
        assert await states(db, *tasks) == ["PENDING", "PENDING", "CLAIMED"]
    assert await registered(db) == ["alive"]


async def test_r100_whoever_has_a_session_is_not_dead(db: Db, me: Identity, look: Any, database_url: str) -> None:
    await given_dead(db, me, silent_s=1000)
    task_id = await given_claimed(db)
    async with await AsyncConnection.connect(database_url, autocommit=True) as session:
        await workers.hold_liveness(session, replace(me, worker_id="w1").liveness_key)
        await look(2)
        assert await states(db, task_id) == ["CLAIMED"] and await registered(db) == ["w1"]


async def test_r100_a_free_lock_alone_proves_nothing(db: Db, me: Identity, look: Any) -> None:
    with sleeping() as (pid, start):
        await given_dead(db, me, pid=pid, process_start=start)
        tasks = [await given_claimed(db), await given_running(db, ended()[0])]
        await look(2)
        assert await states(db, *tasks) == ["CLAIMED", "RUNNING"] and await registered(db) == ["w1"]


async def test_r100_a_stopped_worker_is_not_gone(db: Db, me: Identity, look: Any) -> None:
    with sleeping() as (pid, start):
        os.kill(pid, signal.SIGSTOP)
        await given_dead(db, me, pid=pid, process_start=start)
        task_id = await given_claimed(db)
        await look(2)
        assert await states(db, task_id) == ["CLAIMED"]


@pytest.mark.parametrize("column", ["hostname", "boot_id", "pid_namespace"])
@pytest.mark.parametrize("value", ["another", None])
async def test_r100_a_pid_that_is_invisible_here_is_not_dead(
    db: Db, me: Identity, look: Any, column: str, value: str | None
) -> None:
    pid = await given_dead(db, me, **{column: value})
    tasks = [await given_claimed(db), await given_running(db, pid)]
    await look(2)
    assert await states(db, *tasks) == ["CLAIMED", "RUNNING"] and await registered(db) == ["w1"]


@pytest.mark.parametrize(("is_enrolled", "end"), [(False, "FAILED"), (True, "PENDING")])
async def test_r100_a_running_task_waits_for_the_end_of_its_child(
    db: Db, me: Identity, look: Any, is_enrolled: bool, end: str
) -> None:
    pid = await given_dead(db, me, sweeping=is_enrolled)
    enrolled = {"recovery_enrolled": is_enrolled}
    with sleeping() as (child, _):
        claimed, gone = await given_claimed(db, **enrolled), await given_running(db, pid, **enrolled)
        alive = await given_running(db, child, **enrolled)
        found = await look()
        assert await states(db, claimed, gone, alive) == ["PENDING", end, "RUNNING"]
        assert await registered(db) == ["w1"]
    await found.look()
    assert await states(db, alive) == [end] and await registered(db) == []


async def test_r100_no_threshold_holds_it_up(db: Db, me: Identity, look: Any) -> None:
    """Not a fresh heartbeat, not a result that is being written (R-14), not a deferral (R-47), not patience (R-60)."""
    pid = await given_dead(db, me)
    plain = await given_running(db, pid, finalizing_at="now")
    await given_heartbeat(db, plain, "runner")
    await given_dead(db, me, "w2", sweeping=True)
    facts = {"recovery_enrolled": True, "flags": Jsonb({"infrastructure_resilient": True})}
    enrolled = await given_running(db, pid, "w2", finalizing_at="now", **facts)
    await given_heartbeat(db, enrolled, "runner")
    await look()
    assert await states(db, plain, enrolled) == ["FAILED", "PENDING"]


async def test_r100_enrolled_tasks_go_by_the_sweep_procedure(db: Db, me: Identity, look: Any) -> None:
    pid = await given_dead(db, me, sweeping=True)
    claimed = await given_claimed(db, recovery_enrolled=True)
    running = await given_running(db, pid, recovery_enrolled=True)
    hooks = Listening()
    await look(asker=hooks)
    assert sorted(hooks.asked) == sorted([claimed, running])
    assert sorted(hooks.told) == sorted([f"{claimed} of w1", f"{running} of w1"])
    assert await states(db, claimed, running) == ["PENDING", "PENDING"]
    assert await attempts(db, running) == [("WORKER_FAILURE", True)]
    query = "SELECT count(*) FROM horsies_tasks WHERE enqueued_at > now() + interval '20 s' AND retry_count = 0"
    assert await (await db.execute(query)).fetchone() == (2,)
    await look(2)
    assert await registered(db) == []


async def test_r53_r100_a_task_that_the_hook_skips_is_not_offered_with_every_look(
    db: Db, me: Identity, look: Any
) -> None:
    pid = await given_dead(db, me, sweeping=True)
    task_id = await given_running(db, pid, recovery_enrolled=True)
    hooks = Listening(answer=JobRecoveryResult.Skip)
    await look(3, asker=hooks)
    assert hooks.asked == [task_id] and await states(db, task_id) == ["RUNNING"]


async def test_r75_r100_hooks_hear_of_the_tasks_that_were_interrupted(db: Db, me: Identity, look: Any) -> None:
    pid = await given_dead(db, me)
    await given_claimed(db)
    task_id = await given_running(db, pid)
    hooks = Listening()
    await look(asker=hooks)
    assert hooks.told == [f"{task_id} of w1"] and hooks.asked == []


async def test_r18_r100_with_the_switches_off_tasks_stay(db: Db, me: Identity, look: Any) -> None:
    pid = await given_dead(db, me)
    claimed, running = await given_claimed(db), await given_running(db, pid)
    await look(2, auto_requeue_stale_claimed=False, auto_fail_stale_running=False)
    assert await states(db, claimed, running) == ["CLAIMED", "RUNNING"] and await registered(db) == ["w1"]
    await look(auto_requeue_stale_claimed=False)
    assert await states(db, claimed, running) == ["CLAIMED", "FAILED"]
    await look(auto_fail_stale_running=False)
    assert await states(db, claimed) == ["PENDING"]


async def test_r23_r100_certain_evidence_is_not_held_up(db: Db, me: Identity, look: Any) -> None:
    await given_dead(db, me)
    task_id = await given_claimed(db)
    await look(pulse=Pulse(may=False))
    assert await states(db, task_id) == ["PENDING"]


async def test_r19_r100_an_overdue_claim_of_a_dead_worker_expires(db: Db, me: Identity, look: Any) -> None:
    await given_dead(db, me)
    task_id = await given_claimed(db, good_until="2020-01-01")
    await look()
    assert await states(db, task_id) == ["EXPIRED"]


async def test_r17_r100_many_who_look_at_once_recover_each_task_once(
    db: Db, me: Identity, pool: Pool, database_url: str
) -> None:
    pid = await given_dead(db, me)
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at, started_at,"
        " claim_seq, worker_pid) SELECT 't' || n, 't', CASE n %% 3 WHEN 0 THEN 'CLAIMED' ELSE 'RUNNING' END, TRUE,"
        " 'w1', now(), now(), 1, %s FROM generate_series(1, 1500) n",
        [pid],
    )
    wide = make_pool(PostgresConfig(database_url=database_url), max_size=8)
    looking = [evidence(wide, replace(me, worker_id=f"judge{n}")) for n in range(5)]
    for _ in range(2):
        await asyncio.gather(*(one.look() for one in looking))
    await wide.close()
    rows = await (await db.execute("SELECT status, count(*) FROM horsies_tasks GROUP BY 1 ORDER BY 1")).fetchall()
    assert rows == [("FAILED", 1000), ("PENDING", 500)]
    once = "SELECT count(*), count(DISTINCT task_id) FROM horsies_task_attempts"
    assert await (await db.execute(once)).fetchone() == (1000, 1000)
    assert await registered(db) == []


async def test_r100_one_task_that_the_database_refuses_does_not_keep_the_others_back(
    db: Db, me: Identity, look: Any
) -> None:
    pid = await given_dead(db, me)
    tasks = [await given_running(db, pid, task_name="bad" if n == 2 else "t") for n in range(4)]
    await db.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'no' USING ERRCODE = '22000'; END $$"
    )
    await db.execute(
        "CREATE TRIGGER no BEFORE UPDATE ON horsies_tasks FOR EACH ROW WHEN (NEW.task_name = 'bad')"
        " EXECUTE FUNCTION no()"
    )
    await look(2)
    await db.execute("DROP FUNCTION no CASCADE")
    assert await states(db, *tasks) == ["FAILED", "FAILED", "RUNNING", "FAILED"]
    assert await registered(db) == ["w1"]


# Probable


@pytest.fixture
async def cut_off(db: Db, me: Identity) -> list[str]:
    """A worker of another host that has not been heard of for a while; a claim of its own, a task that it runs, and a
    claim that is enrolled."""
    pid = await given_dead(db, me, hostname="another", silent_s=61)
    enrolled = await given_claimed(db, recovery_enrolled=True)
    return [await given_claimed(db), await given_running(db, pid), enrolled]


async def test_r65_r100_claims_of_a_worker_that_is_probably_dead_go_back(db: Db, cut_off: list[str], look: Any) -> None:
    await look()
    assert await states(db, *cut_off) == ["PENDING", "RUNNING", "CLAIMED"]
    assert await registered(db) == ["w1"]


async def test_r100_whose_heartbeat_is_younger_is_waited_for(db: Db, cut_off: list[str], look: Any) -> None:
    await db.execute("UPDATE horsies_workers SET last_heartbeat_at = now() - interval '50 s'")
    await look()
    assert await states(db, *cut_off) == ["CLAIMED", "RUNNING", "CLAIMED"]


async def test_r100_a_silent_worker_with_a_session_keeps_its_claims(
    db: Db, cut_off: list[str], look: Any, me: Identity, database_url: str
) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as session:
        await workers.hold_liveness(session, replace(me, worker_id="w1").liveness_key)
        await look()
    assert await states(db, *cut_off) == ["CLAIMED", "RUNNING", "CLAIMED"]


async def test_r23_r100_who_has_lost_the_database_himself_judges_nobody_by_silence(
    db: Db, cut_off: list[str], look: Any
) -> None:
    await look(pulse=Pulse(may=False))
    assert await states(db, *cut_off) == ["CLAIMED", "RUNNING", "CLAIMED"]


async def test_r18_r100_with_the_switch_off_claims_stay(db: Db, cut_off: list[str], look: Any) -> None:
    await look(auto_requeue_stale_claimed=False)
    assert await states(db, *cut_off) == ["CLAIMED", "RUNNING", "CLAIMED"]


# The start journal


async def note(me: Identity, worker_id: str, db: Db, *task_ids: str) -> Journal:
    """The journal of this worker, in which these tasks are noted."""
    row = await (
        await db.execute("SELECT process_start FROM horsies_workers WHERE worker_id = %s", [worker_id])
    ).fetchone()
    assert row is not None
    book = Journal(worker_id, row[0], 8)
    assert book.path is not None
    for task_id in task_ids:
        held: Any = HeldTask.__new__(HeldTask)
        held.id, held.claim, held.note_at = task_id, Claim(task_id, 1), None
        Notebook(str(book.path)).note(book.entry(held))
    book_path = book.path
    book.close()
    book.path = book_path
    return book


async def test_r103_what_no_child_had_noted_goes_back_and_the_rest_by_its_policy(
    db: Db, me: Identity, look: Any
) -> None:
    pid = await given_dead(db, me)
    begun, waiting = await given_running(db, pid), await given_running(db, pid)
    again = await given_running(db, pid, claim_seq=2)  # noted under an earlier claim
    book = await note(me, "w1", db, begun, again)
    found = await look()
    assert await states(db, begun, waiting, again) == ["FAILED", "PENDING", "PENDING"]
    assert await attempts(db, waiting) == [] and await attempts(db, begun) == [("WORKER_FAILURE", False)]
    row = await task_row(db, waiting)
    assert (row["worker_pid"], row["started_at"], row["claimed_by_worker_id"], row["retry_count"]) == (None,) * 3 + (0,)
    assert book.path is not None and book.path.exists()
    await found.look()
    assert not book.path.exists()


async def test_r103_enrolled_tasks_that_were_not_begun_go_back_without_hook_or_delay(
    db: Db, me: Identity, look: Any
) -> None:
    pid = await given_dead(db, me, sweeping=True)
    begun, waiting = [await given_running(db, pid, recovery_enrolled=True) for _ in range(2)]
    await note(me, "w1", db, begun)
    hooks = Listening()
    await look(asker=hooks, auto_requeue_stale_claimed=False)  # that is about the reaper
    assert hooks.asked == [begun]
    assert await attempts(db, waiting) == [] and await attempts(db, begun) == [("WORKER_FAILURE", True)]
    due = await (await db.execute("SELECT enqueued_at <= now() FROM horsies_tasks WHERE id = %s", [waiting])).fetchone()
    assert due == (True,)


@pytest.mark.parametrize("damage", ["missing", "torn", "of another worker"])
async def test_r103_without_a_proof_all_count_as_started(db: Db, me: Identity, look: Any, damage: str) -> None:
    pid = await given_dead(db, me)
    tasks = [await given_running(db, pid) for _ in range(3)]
    book = await note(me, "w1", db, tasks[0])
    assert book.path is not None
    if damage == "missing":
        book.path.unlink()
    elif damage == "torn":
        data = bytearray(book.path.read_bytes())
        data[start_journal.HEADER_BYTES] ^= 1
        book.path.write_bytes(data)
    else:
        await db.execute("UPDATE horsies_workers SET process_start = process_start + 1")
    await look()
    assert await states(db, *tasks) == ["FAILED"] * 3


async def test_r103_the_journal_is_read_after_the_child_is_gone(db: Db, me: Identity, look: Any) -> None:
    """While its process is there a child may still begin what it has not noted."""
    pid = await given_dead(db, me)
    with sleeping() as (child, _):
        task_id = await given_running(db, child)
        await note(me, "w1", db, await given_running(db, pid))
        found = await look()
        assert await states(db, task_id) == ["RUNNING"]
    await found.look()
    assert await states(db, task_id) == ["PENDING"]


# Order


async def test_r103_who_goes_by_silence_waits_for_the_first_look(db: Db, me: Identity, pool: Pool) -> None:
    found = evidence(pool, me)
    seen: list[str] = []

    async def step() -> None:
        seen.append("step")

    waiting = asyncio.create_task(found.first(step)())
    await asyncio.sleep(0)
    assert seen == []
    await found.look()
    await waiting
    await found.first(step)()
    assert seen == ["step", "step"]
