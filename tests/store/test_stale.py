"""Which tasks in flight count as dead: the statement that finds them, rule by rule. Ages are exact
to the microsecond, as the clock of the transaction stands still.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.store import recovery, tasks
from horsies.core.tasks import moves
from horsies.core.tasks.moves import Claim, Expire, Requeue
from horsies.core.types.status import TaskStatus
from tests.factories import given_heartbeat, given_task, given_worker, task_row

CLAIMED, RUNNING = TaskStatus.CLAIMED, TaskStatus.RUNNING
ROLES = {CLAIMED: "claimer", RUNNING: "runner"}
LIMITS = {CLAIMED: timedelta(seconds=120), RUNNING: timedelta(seconds=300)}
A_MOMENT = timedelta(microseconds=1)
AGES_AGO = timedelta(hours=3)
POLICY, SWEEPING = RecoveryConfig(), WorkerRecoveryConfig()

Db = AsyncConnection[Any]


async def ago(db: Db, age: timedelta) -> datetime:
    row = await (await db.execute("SELECT now() - %s", [age])).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


async def silent(db: Db, status: TaskStatus, age: timedelta = AGES_AGO, **columns: Any) -> str:
    """A task in flight whose only sign of life is its claim or its start."""
    since = await ago(db, age)
    times = {"claimed_at": since, "started_at": since if status is RUNNING else None}
    return await given_task(db, status=status, **{**times, **columns})


async def stale(db: Db, status: TaskStatus, policy: RecoveryConfig = POLICY, **more: Any) -> set[str]:
    sweeping = more.pop("sweeping", SWEEPING)
    return {task.task_id for task in await recovery.find_stale(db, status, policy, sweeping, **more)}


@pytest.mark.parametrize("status", LIMITS)
async def test_r12_a_task_without_heartbeats_ages_from_its_claim_or_start(frozen: Db, status: TaskStatus) -> None:
    limit = LIMITS[status]
    await silent(frozen, status, limit)  # age > threshold, strictly
    await silent(frozen, status, timedelta(0))
    late = await silent(frozen, status, limit + A_MOMENT)
    assert await stale(frozen, status) == {late}


@pytest.mark.parametrize(("status", "role"), ROLES.items())
async def test_r12_the_newest_heartbeat_of_the_right_role_counts(frozen: Db, status: TaskStatus, role: str) -> None:
    limit = LIMITS[status]
    beating, quiet, other_role = [await silent(frozen, status) for _ in range(3)]
    for task_id, newest in ((beating, limit), (quiet, limit + A_MOMENT)):
        for age in (newest, AGES_AGO, 2 * newest):
            await given_heartbeat(frozen, task_id, role, sent_at=await ago(frozen, age))
    await given_heartbeat(frozen, other_role, "claimer" if role == "runner" else "runner")
    assert await stale(frozen, status) == {quiet, other_role}


async def test_r12_a_start_is_a_sign_of_life_though_the_claim_is_old(frozen: Db) -> None:
    await silent(frozen, RUNNING, started_at=await ago(frozen, LIMITS[RUNNING]))
    assert await stale(frozen, RUNNING) == set()


async def test_r12_a_heartbeat_of_a_former_claim_is_older_than_this_one(frozen: Db) -> None:
    await given_worker(frozen, "patient", recovery=Jsonb({"claimed_stale_threshold_ms": 1_200_000}))
    for owner, age in (("w1", timedelta(seconds=60)), ("patient", timedelta(seconds=600))):
        task_id = await silent(frozen, CLAIMED, age, claimed_by_worker_id=owner)
        await given_heartbeat(frozen, task_id, "claimer", sent_at=await ago(frozen, AGES_AGO))
    assert await stale(frozen, CLAIMED) == set()


async def test_r12_only_tasks_in_flight_and_of_the_status_asked_for(frozen: Db) -> None:
    since = await ago(frozen, AGES_AGO)
    for status in TaskStatus:
        if status not in LIMITS:
            await given_task(frozen, status=status, claimed_at=since, started_at=since, claimed_by_worker_id="w1")
    claimed, running = await silent(frozen, CLAIMED), await silent(frozen, RUNNING)
    assert await stale(frozen, CLAIMED) == {claimed}
    assert await stale(frozen, RUNNING) == {running}


async def test_r14_a_result_being_written_waits_for_its_own_threshold_too(frozen: Db) -> None:
    policy = RecoveryConfig(finalizing_stale_threshold_ms=600_000)
    limit = timedelta(seconds=600)
    await silent(frozen, RUNNING, finalizing_at=await ago(frozen, limit))
    late = await silent(frozen, RUNNING, finalizing_at=await ago(frozen, limit + A_MOMENT))
    beating = await silent(frozen, RUNNING, finalizing_at=await ago(frozen, AGES_AGO))
    await given_heartbeat(frozen, beating, "runner")
    assert await stale(frozen, RUNNING, policy) == {late}


async def test_r17_the_longest_silence_first_and_no_more_than_asked_for(frozen: Db) -> None:
    ids = [await silent(frozen, CLAIMED, timedelta(minutes=10 + n)) for n in range(4)]
    await given_heartbeat(frozen, ids[3], "claimer", sent_at=await ago(frozen, timedelta(minutes=9)))
    found = await recovery.find_stale(frozen, CLAIMED, POLICY, SWEEPING, most=3)
    assert [task.task_id for task in found] == [ids[2], ids[1], ids[0]]


async def test_r19_the_caller_learns_whether_the_deadline_has_passed(frozen: Db) -> None:
    past, ahead, none = [
        await silent(frozen, CLAIMED, good_until=when)
        for when in (await ago(frozen, timedelta(0)), await ago(frozen, -A_MOMENT), None)
    ]
    found = await recovery.find_stale(frozen, CLAIMED, POLICY, SWEEPING)
    assert {task.task_id: task.is_overdue for task in found} == {past: True, ahead: False, none: False}
    moves = [Expire(t.claim, "{}") if t.is_overdue else Requeue(t.claim) for t in found]
    assert await tasks.apply(frozen, "w1", moves) == {past, ahead, none}
    rows = [(await task_row(frozen, task_id))["status"] for task_id in (past, ahead, none)]
    assert rows == ["EXPIRED", "PENDING", "PENDING"]


async def test_r21_what_is_told_about_the_dead_one(frozen: Db) -> None:
    task_id = await silent(
        frozen, RUNNING, claim_seq=4, task_name="n", queue_name="q", task_options="{}", retry_count=1, max_retries=3,
        worker_hostname="host", worker_pid=77, worker_process_name="child-77", workflow_id="wf",
    )  # fmt: skip
    beat = await ago(frozen, timedelta(seconds=400))
    await given_heartbeat(frozen, task_id, "runner", sent_at=beat)
    [task] = await recovery.find_stale(frozen, RUNNING, POLICY, SWEEPING)
    assert task == moves.InFlight(
        task_id, 4, "w1", RUNNING, "n", "q", "{}", 1, 3, False, "wf", False, await ago(frozen, AGES_AGO),
        "host", 77, "child-77", beat, 400.0,
    )  # fmt: skip
    assert task.claim == Claim(task_id, 4)


PATIENT = {
    CLAIMED: {"claimed_stale_threshold_ms": 1_200_000, "claimer_heartbeat_interval_ms": 1000},
    RUNNING: {"running_stale_threshold_ms": 1_200_000, "runner_heartbeat_interval_ms": 1000},
}


@pytest.mark.parametrize("status", LIMITS)
async def test_r63_a_worker_is_judged_by_its_own_threshold_where_it_is_more_patient(
    frozen: Db, status: TaskStatus
) -> None:
    await given_worker(frozen, "patient", recovery=Jsonb(PATIENT[status]))
    await given_worker(frozen, "hasty", recovery=Jsonb(dict.fromkeys(PATIENT[status], 1000)))
    limit = timedelta(seconds=1200)
    await silent(frozen, status, limit, claimed_by_worker_id="patient")
    late = await silent(frozen, status, limit + A_MOMENT, claimed_by_worker_id="patient")
    await silent(frozen, status, LIMITS[status], claimed_by_worker_id="hasty")
    later = await silent(frozen, status, LIMITS[status] + A_MOMENT, claimed_by_worker_id="hasty")
    unknown = await silent(frozen, status, LIMITS[status] + A_MOMENT, claimed_by_worker_id="without a row")
    assert await stale(frozen, status) == {late, later, unknown}


@pytest.mark.parametrize(("status", "role"), ROLES.items())
async def test_r63_never_by_less_than_two_of_its_own_heartbeats(frozen: Db, status: TaskStatus, role: str) -> None:
    await given_worker(frozen, "slow", recovery=Jsonb({f"{role}_heartbeat_interval_ms": 400_000}))
    limit = timedelta(seconds=800)
    await silent(frozen, status, limit, claimed_by_worker_id="slow")
    late = await silent(frozen, status, limit + A_MOMENT, claimed_by_worker_id="slow")
    assert await stale(frozen, status) == {late}


@pytest.mark.parametrize(
    "settings", [{"finalizing_stale_threshold_ms": 1_200_000}, {"runner_heartbeat_interval_ms": 600_000}]
)
async def test_r63_its_own_finalizing_threshold_holds_too(frozen: Db, settings: dict[str, int]) -> None:
    await given_worker(frozen, "patient", recovery=Jsonb(settings))
    limit = timedelta(seconds=1200)
    await silent(frozen, RUNNING, claimed_by_worker_id="patient", finalizing_at=await ago(frozen, limit))
    mine = {"claimed_by_worker_id": "patient", "finalizing_at": await ago(frozen, limit + A_MOMENT)}
    late = await silent(frozen, RUNNING, **mine)
    assert await stale(frozen, RUNNING) == {late}


@pytest.mark.parametrize("status", LIMITS)
async def test_r91_a_threshold_given_by_hand_is_taken_as_given(frozen: Db, status: TaskStatus) -> None:
    await given_worker(frozen, "patient", recovery=Jsonb(PATIENT[status]))
    given = timedelta(seconds=5)
    await silent(frozen, status, given)
    late = await silent(frozen, status, given + A_MOMENT)
    patient = await silent(frozen, status, given + A_MOMENT, claimed_by_worker_id="patient")
    enrolled = await silent(frozen, status, given + A_MOMENT, claimed_by_worker_id="gone", recovery_enrolled=True)
    writing = await silent(frozen, status, finalizing_at=await ago(frozen, LIMITS[RUNNING]))
    assert await stale(frozen, status, threshold=given) == {late, patient, enrolled}
    await frozen.execute(
        "UPDATE horsies_tasks SET finalizing_at = %s WHERE id = %s", [await ago(frozen, AGES_AGO), writing]
    )
    assert await stale(frozen, status, threshold=given) == {late, patient, enrolled, writing}


@pytest.mark.parametrize("status", LIMITS)
async def test_r66_an_enrolled_task_is_the_sweepers_unless_its_worker_outlived_the_silence(
    frozen: Db, status: TaskStatus
) -> None:
    """Silent for ten minutes: stale since ten minutes less the threshold. Each worker is named after its last word."""
    silence, limit = timedelta(minutes=10), LIMITS[status]
    since = silence - limit  # when it became stale
    sweeping = WorkerRecoveryConfig(sweep_threshold=timedelta(minutes=9))
    workers = {"as it became stale": since, "before it became stale": since + A_MOMENT, "just now": timedelta(0)}
    ids = {}
    for name, age in workers.items():
        await given_worker(frozen, name, sweeping=True, last_heartbeat_at=await ago(frozen, age))
        ids[name] = await silent(frozen, status, silence, claimed_by_worker_id=name, recovery_enrolled=True)
    ids["gone"] = await silent(frozen, status, silence, claimed_by_worker_id="gone", recovery_enrolled=True)
    assert await stale(frozen, status, sweeping=sweeping) == {ids["as it became stale"], ids["just now"]}


async def test_r65_a_dead_workers_tasks_are_the_sweepers_even_if_it_outlived_their_silence(frozen: Db) -> None:
    sweeping = WorkerRecoveryConfig(sweep_threshold=timedelta(minutes=5))
    ids = {}
    for name, age in {"alive": timedelta(minutes=5), "dead": timedelta(minutes=5) + A_MOMENT}.items():
        await given_worker(frozen, name, sweeping=True, last_heartbeat_at=await ago(frozen, age))
        ids[name] = await silent(frozen, RUNNING, claimed_by_worker_id=name, recovery_enrolled=True)
    not_enrolled = await silent(frozen, RUNNING, claimed_by_worker_id="dead")
    assert await stale(frozen, RUNNING, sweeping=sweeping) == {ids["alive"], not_enrolled}


@pytest.mark.parametrize(
    ("flags", "is_resilient"),
    [
        ({"infrastructure_resilient": True}, True),
        ({"infrastructure_resilient": False}, False),
        ({"infrastructure_resilient": None}, False),
        ({"another": True}, False),
        ({}, False),
    ],
)
async def test_r60_a_worker_with_a_resilient_task_counts_as_alive_for_longer(
    frozen: Db, flags: dict[str, bool], is_resilient: bool
) -> None:
    sweeping = WorkerRecoveryConfig(sweep_threshold=timedelta(minutes=5), resilient_sweep_threshold_multiplier=4)
    heard = timedelta(minutes=20)
    await given_worker(frozen, "w", sweeping=True, last_heartbeat_at=await ago(frozen, heard))
    await given_worker(frozen, "w2", sweeping=True, last_heartbeat_at=await ago(frozen, heard + A_MOMENT))
    mine, theirs = [
        await silent(frozen, RUNNING, claimed_by_worker_id=name, recovery_enrolled=True) for name in ("w", "w2")
    ]
    for name in ("w", "w2"):
        started = await ago(frozen, timedelta(0))
        await silent(frozen, RUNNING, started_at=started, claimed_by_worker_id=name, flags=Jsonb(flags))
    resilient = Jsonb({"infrastructure_resilient": True})
    await silent(frozen, CLAIMED, claimed_by_worker_id="another", flags=resilient)
    await given_task(frozen, status=TaskStatus.COMPLETED, claimed_by_worker_id="w", flags=resilient)
    found = await stale(frozen, RUNNING, sweeping=sweeping)
    assert (mine in found, theirs in found) == (is_resilient, False)


async def test_r61_other_flags_may_be_the_resilient_ones_or_none(frozen: Db) -> None:
    await given_worker(frozen, "w", sweeping=True, last_heartbeat_at=await ago(frozen, timedelta(minutes=6)))
    task_id = await silent(
        frozen,
        RUNNING,
        claimed_by_worker_id="w",
        recovery_enrolled=True,
        flags=Jsonb({"infrastructure_resilient": True}),
    )
    assert await stale(frozen, RUNNING, sweeping=SWEEPING) == {task_id}
    for flags in (["another"], []):
        assert await stale(frozen, RUNNING, sweeping=WorkerRecoveryConfig(resilient_job_flags=flags)) == set()


async def test_r63_a_patient_worker_counts_as_alive_for_longer(frozen: Db) -> None:
    own = {"worker_recovery": {"sweep_threshold": 1_200_000, "heartbeat_interval": 1000}}
    slow = {"worker_recovery": {"sweep_threshold": 1000, "heartbeat_interval": 600_000}}
    ids = {}
    for name, settings, age in (
        ("patient", own, timedelta(minutes=20)),
        ("slow", slow, timedelta(minutes=20)),
        ("dead", own, timedelta(minutes=20) + A_MOMENT),
        ("dead too", slow, timedelta(minutes=20) + A_MOMENT),
    ):
        await given_worker(
            frozen, name, sweeping=True, last_heartbeat_at=await ago(frozen, age), recovery=Jsonb(settings)
        )
        ids[name] = await silent(frozen, RUNNING, claimed_by_worker_id=name, recovery_enrolled=True)
    assert await stale(frozen, RUNNING) == {ids["patient"], ids["slow"]}


async def test_r56_once_recovered_the_claim_is_nobodys(frozen: Db) -> None:
    task_id = await silent(frozen, CLAIMED)
    [task] = await recovery.find_stale(frozen, CLAIMED, POLICY, SWEEPING)
    assert await tasks.apply(frozen, "w1", [Requeue(task.claim)]) == {task_id}
    assert await tasks.start(frozen, "w1", "host", [task.claim], [1], ["p"]) == set()
    assert await stale(frozen, CLAIMED) == set()
