"""Who counts as dead and what they hold: the statements of a sweep, rule by rule. Ages are exact to the microsecond, as
the clock of the transaction stands still.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.models import recovery
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.store import workers
from horsies.core.store.workers import WHENEVER, Gone, SweepPosition
from horsies.core.tasks import moves
from horsies.core.types.status import TaskStatus
from tests.factories import given_attempt, given_heartbeat, given_task, given_worker

CLAIMED, RUNNING = TaskStatus.CLAIMED, TaskStatus.RUNNING
A_MOMENT = timedelta(microseconds=1)
LIMIT = timedelta(minutes=5)
AGES_AGO = timedelta(hours=3)
SWEEPING = WorkerRecoveryConfig()

Db = AsyncConnection[Any]


async def ago(db: Db, age: timedelta) -> datetime:
    row = await (await db.execute("SELECT now() - %s", [age])).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


async def worker(db: Db, name: str, age: timedelta = AGES_AGO, **columns: Any) -> str:
    """A worker that takes part in sweeping and was last heard of this long ago."""
    if "recovery" in columns:
        columns["recovery"] = Jsonb(columns["recovery"])
    await given_worker(db, name, **{"sweeping": True, "last_heartbeat_at": await ago(db, age), **columns})
    return name


async def enrolled(db: Db, owner: str, status: TaskStatus = RUNNING, **columns: Any) -> str:
    """A task of a worker that takes part in sweeping."""
    long_ago = await ago(db, AGES_AGO)
    times = {"claimed_at": long_ago, "started_at": long_ago if status is RUNNING else None}
    values = {"claimed_by_worker_id": owner, "recovery_enrolled": True, **times, **columns}
    return await given_task(db, status=status, **values)


async def dead(db: Db, config: WorkerRecoveryConfig = SWEEPING, *, me: str = "me", **more: Any) -> list[str]:
    found = await workers.dead(db, me, config, more.pop("recovery", RecoveryConfig()), **more)
    return [one.worker_id for one in found]


async def held(db: Db, *gone: Gone, **more: Any) -> dict[str, bool]:
    """The ids of what they hold, and whether each is deferred."""
    found = await workers.held(db, gone, **{"until": WHENEVER, **more})
    return {one.task.task_id: one.is_deferred for one in found}


# Who is dead


async def test_r44_a_worker_is_dead_when_its_heartbeat_is_older_than_the_threshold(frozen: Db) -> None:
    await worker(frozen, "alive", LIMIT)  # age > threshold, strictly
    await worker(frozen, "late", LIMIT + A_MOMENT)
    [late] = await workers.dead(frozen, "me", SWEEPING, RecoveryConfig())
    assert late == Gone("late", await ago(frozen, LIMIT + A_MOMENT), 300.0, 300.0)


async def test_r44_a_worker_without_worker_recovery_is_not_swept(frozen: Db) -> None:
    await worker(frozen, "not sweeping", sweeping=False)
    await enrolled(frozen, "not sweeping")  # though it never claims like this
    assert await dead(frozen) == []


async def test_r46_nobody_sweeps_itself(frozen: Db) -> None:
    await worker(frozen, "me")
    await enrolled(frozen, "me, unregistered")
    assert await dead(frozen, me="me") == ["me, unregistered"]
    assert await dead(frozen, me="me, unregistered") == ["me"]


@pytest.mark.parametrize("status", [CLAIMED, RUNNING])
async def test_r45_an_orphans_worker_is_dead_however_young_it_is(frozen: Db, status: TaskStatus) -> None:
    just_now = {"claimed_at": await ago(frozen, timedelta(0))}
    await enrolled(frozen, "unregistered", status, **just_now)
    await enrolled(frozen, "registered", status, **just_now)
    await worker(frozen, "registered", timedelta(0))
    [orphans] = await workers.dead(frozen, "me", SWEEPING, RecoveryConfig())
    assert orphans == Gone("unregistered", None, 300.0, 300.0)


async def test_r45_r42_only_enrolled_tasks_in_flight_make_an_orphan(frozen: Db) -> None:
    for status in TaskStatus:
        await enrolled(frozen, status.value, status)
        await enrolled(frozen, f"not enrolled {status}", status, recovery_enrolled=False)
    assert await dead(frozen) == ["CLAIMED", "RUNNING"]


async def test_r45_many_owners_are_found_whatever_lies_between_them(frozen: Db) -> None:
    for owner in ("a", "b", "c", "d", "é", "Z z", "0"):
        for n in range(3):
            await enrolled(frozen, owner, recovery_enrolled=n == 1)
    await worker(frozen, "b", timedelta(0))
    assert sorted(await dead(frozen)) == sorted(["a", "c", "d", "é", "Z z", "0"])


# By which threshold


@pytest.mark.parametrize(
    ("flags", "is_resilient"),
    [
        ({"infrastructure_resilient": True}, True),
        ({"infrastructure_resilient": 1}, True),
        ({"infrastructure_resilient": False}, False),
        ({"infrastructure_resilient": None}, False),
        ({"infrastructure_resilient": 0}, False),
        ({"infrastructure_resilient": ""}, False),
        ({"another": True}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("status", [CLAIMED, RUNNING])
async def test_r60_r61_a_worker_with_a_resilient_task_has_a_multiple_of_the_threshold(
    frozen: Db, flags: dict[str, object], is_resilient: bool, status: TaskStatus
) -> None:
    config = WorkerRecoveryConfig(resilient_sweep_threshold_multiplier=4)
    for name, age in (("resilient", 4 * LIMIT), ("late", 4 * LIMIT + A_MOMENT), ("plain", LIMIT + A_MOMENT)):
        await worker(frozen, name, age)
        await enrolled(frozen, name, status)
    for name in ("resilient", "late"):
        await enrolled(frozen, name, status, flags=Jsonb(flags))
    resilient = {"flags": Jsonb({"infrastructure_resilient": True})}
    await given_task(frozen, status=TaskStatus.COMPLETED, claimed_by_worker_id="plain", **resilient)
    await enrolled(frozen, "another", status, **resilient)
    found = {one.worker_id: one.threshold_s for one in await workers.dead(frozen, "me", config, RecoveryConfig())}
    assert ("resilient" not in found, found["plain"], found["another"]) == (is_resilient, 300.0, 1200.0)
    assert found["late"] == (1200.0 if is_resilient else 300.0)


async def test_r61_a_list_of_flags_replaces_the_usual_one(frozen: Db) -> None:
    await worker(frozen, "usual", 2 * LIMIT)
    await enrolled(frozen, "usual", flags=Jsonb({"infrastructure_resilient": True}))
    await worker(frozen, "custom", 2 * LIMIT)
    await enrolled(frozen, "custom", flags=Jsonb({"other": False, "custom": True}))
    assert await dead(frozen) == ["custom"]
    assert await dead(frozen, WorkerRecoveryConfig(resilient_job_flags=["other", "custom"])) == ["usual"]
    assert await dead(frozen, WorkerRecoveryConfig(resilient_job_flags=[])) == ["custom", "usual"]


async def test_r62_the_multiplier_holds_for_a_threshold_of_one_call_too(frozen: Db) -> None:
    given = timedelta(seconds=10)
    for name, age in (("resilient", 3 * given), ("late", 3 * given + A_MOMENT)):
        await worker(frozen, name, age)
        await enrolled(frozen, name, flags=Jsonb({"infrastructure_resilient": True}))
    await worker(frozen, "plain", given)
    await worker(frozen, "plain, late", given + A_MOMENT)
    assert await dead(frozen, threshold=given) == ["late", "plain, late"]


@pytest.mark.parametrize("own", [{"sweep_threshold": 1_200_000}, {"heartbeat_interval": 600_000}])
async def test_r63_a_worker_is_judged_by_its_own_settings_where_they_are_more_patient(
    frozen: Db, own: dict[str, int]
) -> None:
    patient = {"worker_recovery": {"sweep_threshold": 1000, "heartbeat_interval": 1000, **own}}
    hasty = {"worker_recovery": {"sweep_threshold": 1000, "heartbeat_interval": 1000}}
    await worker(frozen, "patient", timedelta(seconds=1200), recovery=patient)
    await worker(frozen, "late", timedelta(seconds=1200) + A_MOMENT, recovery=patient)
    await worker(frozen, "hasty", LIMIT, recovery=hasty)
    await worker(frozen, "hasty, late", LIMIT + A_MOMENT, recovery=hasty)
    assert await dead(frozen) == ["hasty, late", "late"]
    # A threshold given by hand is taken as given.
    assert await dead(frozen, threshold=LIMIT) == ["hasty, late", "late", "patient"]


@pytest.mark.parametrize("own", [{"finalizing_stale_threshold_ms": 900_000}, {"runner_heartbeat_interval_ms": 450_000}])
async def test_r63_its_own_finalizing_threshold_holds_where_it_is_more_patient(frozen: Db, own: dict[str, int]) -> None:
    await worker(frozen, "patient", recovery=own)
    await worker(frozen, "hasty", recovery={"finalizing_stale_threshold_ms": 1000})
    await enrolled(frozen, "unregistered")
    policy = RecoveryConfig(finalizing_stale_threshold_ms=600_000)
    found = await workers.dead(frozen, "me", SWEEPING, policy, threshold=LIMIT)
    limits = {one.worker_id: one.finalizing_s for one in found}
    assert limits == {"patient": 900.0, "hasty": 600.0, "unregistered": 600.0}


# What they hold


async def test_r44_what_the_dead_hold_comes_in_the_order_of_its_claims(frozen: Db) -> None:
    ages = {name: timedelta(minutes=n) for n, name in enumerate("abcd", start=10)}
    ids = {
        name: await enrolled(frozen, "w" if name in "ac" else "v", CLAIMED, claimed_at=await ago(frozen, age))
        for name, age in ages.items()
    }
    await enrolled(frozen, "another")
    await enrolled(frozen, "w", TaskStatus.COMPLETED)
    gone = [Gone("v", WHENEVER), Gone("w", WHENEVER)]
    assert list(await held(frozen, *gone)) == [ids[name] for name in "dcba"]
    first = await workers.held(frozen, gone, until=WHENEVER, most=2)
    assert [one.task.task_id for one in first] == [ids["d"], ids["c"]]
    assert list(await held(frozen, *gone, after=first[-1].place)) == [ids["b"], ids["a"]]
    assert list(await held(frozen, *gone, until=await ago(frozen, ages["b"]))) == [ids["d"], ids["c"], ids["b"]]


async def test_r44_a_claim_without_a_time_comes_first_and_only_once(frozen: Db) -> None:
    """Rows that somebody wrote by hand."""
    timeless = sorted([await enrolled(frozen, "w", CLAIMED, claimed_at=None) for _ in range(2)])
    other = await enrolled(frozen, "w", CLAIMED)
    found: list[str] = []
    place = SweepPosition("-infinity", "")
    while step := await workers.held(frozen, [Gone("w", WHENEVER)], until=WHENEVER, after=place, most=1):
        found.append(step[0].task.task_id)
        place = step[-1].place
    assert found == [*timeless, other]


async def test_r45_of_an_unregistered_worker_only_enrolled_tasks_count(frozen: Db) -> None:
    mine = await enrolled(frozen, "w")
    other = await enrolled(frozen, "w", recovery_enrolled=False)
    assert set(await held(frozen, Gone("w", None))) == {mine}
    assert set(await held(frozen, Gone("w", WHENEVER))) == {mine, other}


@pytest.mark.parametrize("seen", [None, WHENEVER])
async def test_r47_a_result_that_is_being_written_is_deferred(frozen: Db, seen: datetime | None) -> None:
    gone = Gone("w", seen, 300.0, 60.0)
    ids = [
        await enrolled(frozen, "w", finalizing_at=await ago(frozen, timedelta(seconds=60) - moment))
        for moment in (A_MOMENT, timedelta(0))
    ]
    assert [(await held(frozen, gone))[task_id] for task_id in ids] == [True, False]
    assert set((await held(frozen, Gone("w", seen))).values()) == {False}  # a certain death defers nothing


@pytest.mark.parametrize("seen", [None, WHENEVER])
async def test_r47_a_task_whose_child_still_beats_is_deferred(frozen: Db, seen: datetime | None) -> None:
    beating, quiet, claimed = [await enrolled(frozen, "w", status) for status in (RUNNING, RUNNING, CLAIMED)]
    for task_id, newest in ((beating, LIMIT - A_MOMENT), (quiet, LIMIT)):
        for age in (newest, AGES_AGO):
            await given_heartbeat(frozen, task_id, "runner", sent_at=await ago(frozen, age))
    await given_heartbeat(frozen, quiet, "claimer")
    await given_heartbeat(frozen, claimed, "claimer")  # its claimer is the worker, which is dead
    gone = Gone("w", seen, LIMIT.total_seconds(), 300.0)
    assert await held(frozen, gone) == {beating: True, quiet: False, claimed: False}
    assert set((await held(frozen, Gone("w", seen))).values()) == {False}


async def test_r47_a_heartbeat_of_an_earlier_run_says_nothing(frozen: Db) -> None:
    task_id = await enrolled(frozen, "w", started_at=await ago(frozen, timedelta(seconds=5)))
    await given_heartbeat(frozen, task_id, "runner", sent_at=await ago(frozen, timedelta(seconds=6)))
    assert await held(frozen, Gone("w", None, 300.0, 300.0)) == {task_id: False}


async def test_r58_the_attempts_that_dead_workers_have_cost_are_counted(frozen: Db) -> None:
    task_id = await enrolled(frozen, "w")
    for attempt, outcome in enumerate(["WORKER_FAILURE", "FAILED", "WORKER_FAILURE"], start=1):
        await given_attempt(frozen, task_id, attempt=attempt, outcome=outcome)
    await given_attempt(frozen, await enrolled(frozen, "x"), outcome="WORKER_FAILURE")
    [found] = await workers.held(frozen, [Gone("w", None)], until=WHENEVER)
    assert found.task.recoveries == 2


async def test_r21_what_is_told_about_a_task_in_flight(frozen: Db) -> None:
    task_id = await enrolled(
        frozen, "w", claim_seq=4, task_name="n", queue_name="q", task_options="{}", retry_count=1, max_retries=3,
        worker_hostname="host", worker_pid=77, worker_process_name="child-77", workflow_id="wf",
        good_until=await ago(frozen, A_MOMENT),
    )  # fmt: skip
    beat = await ago(frozen, timedelta(seconds=400))
    await given_heartbeat(frozen, task_id, "runner", sent_at=beat)
    [found] = await workers.held(frozen, [Gone("w", None)], until=WHENEVER)
    assert found.task == moves.InFlight(
        task_id, 4, "w", RUNNING, "n", "q", "{}", 1, 3, True, "wf", True, await ago(frozen, AGES_AGO),
        "host", 77, "child-77", beat, 400.0, 0,
    )  # fmt: skip


# The end of their rows


async def test_r44_rows_end_unless_their_worker_has_been_heard_of_since(frozen: Db) -> None:
    then = await ago(frozen, LIMIT + A_MOMENT)
    await worker(frozen, "dead", LIMIT + A_MOMENT)
    await worker(frozen, "came back", LIMIT)
    await worker(frozen, "registered again", LIMIT)
    await worker(frozen, "not asked about")
    gone = [Gone("registered again", None), Gone("dead", then), Gone("came back", then), Gone("orphan", None)]
    assert await workers.forget(frozen, [*gone, Gone("unregistered itself", then)]) == {"dead", "orphan"}
    left = [one.worker_id for one in await workers.active(frozen, LIMIT)]
    assert sorted(left) == ["came back", "not asked about", "registered again"]


async def test_r43_the_list_of_workers_is_judged_by_the_threshold_that_is_passed(frozen: Db) -> None:
    long_ago, before = await ago(frozen, AGES_AGO), await ago(frozen, AGES_AGO - A_MOMENT)
    own = {"worker_recovery": {"sweep_threshold": 1, "heartbeat_interval": 1}}
    await worker(frozen, "late", LIMIT + A_MOMENT, started_at=before, recovery=own, hostname="h", pid=7)
    await worker(frozen, "alive", LIMIT, started_at=before, recovery=own, sweeping=False)
    await worker(frozen, "first", timedelta(0), started_at=long_ago)
    found = await workers.active(frozen, LIMIT)
    assert [(one.worker_id, one.is_stale) for one in found] == [("first", False), ("alive", False), ("late", True)]
    assert found[2] == recovery.ActiveWorker("late", True, before, await ago(frozen, LIMIT + A_MOMENT), "h", 7)


# Whom nobody has swept


OWN = {"sweep_threshold": 600_000, "heartbeat_interval": 1000, "sweep_interval": 30_000}


@pytest.mark.parametrize(
    ("recovery", "seconds"),
    [
        ({"worker_recovery": OWN}, 660),
        ({"worker_recovery": {**OWN, "heartbeat_interval": 400_000}}, 860),
        ({}, 420),
        (None, 420),
    ],
)
async def test_r68_a_worker_is_abandoned_two_of_its_sweep_intervals_after_its_threshold(
    frozen: Db, recovery: dict[str, Any] | None, seconds: int
) -> None:
    settings = {} if recovery is None else {"recovery": recovery}
    await worker(frozen, "waits", timedelta(seconds=seconds), **settings)
    await worker(frozen, "abandoned", timedelta(seconds=seconds) + A_MOMENT, **settings)
    await worker(frozen, "me", **settings)
    await worker(frozen, "not sweeping", sweeping=False, **settings)
    found = await workers.abandoned(frozen, "me", RecoveryConfig())
    assert [one.worker_id for one in found] == ["abandoned"]
    [one] = found
    sweep_interval = 30 if recovery and "worker_recovery" in recovery else 60
    assert one.threshold_s == seconds - 2 * sweep_interval


async def test_r68_resilience_is_that_of_the_dead_ones_own_settings(frozen: Db) -> None:
    own = {"worker_recovery": {**OWN, "resilient_sweep_threshold_multiplier": 2, "resilient_job_flags": ["slow"]}}
    for name, age in (("resilient", 1260), ("late", 1261)):
        await worker(frozen, name, timedelta(seconds=age), recovery=own)
        await enrolled(frozen, name, flags=Jsonb({"slow": True}))
    await worker(frozen, "plain", timedelta(seconds=1260), recovery=own)
    await enrolled(frozen, "plain", flags=Jsonb({"infrastructure_resilient": True, "slow": False}))
    found = await workers.abandoned(frozen, "me", RecoveryConfig())
    assert sorted(one.worker_id for one in found) == ["late", "plain"]


async def test_r68_without_a_row_the_tasks_own_silence_counts(frozen: Db) -> None:
    limit = timedelta(seconds=420)
    waits = {"claimed_at": await ago(frozen, limit), "started_at": None}
    await enrolled(frozen, "waits", CLAIMED, **waits)
    await enrolled(frozen, "me")
    beating = await enrolled(frozen, "beating")
    await given_heartbeat(frozen, beating, "runner", sent_at=await ago(frozen, limit))
    late = await enrolled(frozen, "abandoned", CLAIMED, claimed_at=await ago(frozen, limit + A_MOMENT))
    young = await enrolled(frozen, "abandoned", CLAIMED, **waits)
    found = await workers.abandoned(frozen, "me", RecoveryConfig())
    assert [(one.worker_id, one.seen) for one in found] == [("abandoned", None)]
    # Of what it holds only what has been silent for that long is touched.
    assert await held(frozen, *found) == {late: False, young: True}
