"""A task's whole way through the state machine: rules about several arrows together, and who may not make them."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.schema.install import lock_key
from horsies.core.sql import load
from horsies.core.store import holds, recovery, tasks
from horsies.core.store.holds import Beat
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, Requeue, Retry
from horsies.core.types.status import TaskAttemptOutcome
from tests.store.test_arrows import (
    ERR,
    ME,
    OK,
    OTHER,
    Db,
    attempts_of,
    claim_one,
    given_task,
    now,
    order,
    row_of,
    running,
)

RUN_COLUMNS = ("started_at", "worker_pid", "worker_hostname", "worker_process_name")
CLAIM_COLUMNS = ("claimed_at", "claimed_by_worker_id", "claim_expires_at", "finalizing_at")


async def claimed(db: Db, **columns: Any) -> Claim:
    await given_task(db, **columns)
    row = await claim_one(db)
    return Claim(row.id, row.claim_seq)


def crash(claim: Claim, reason: str = "killed by SIGKILL") -> Fail:
    return Fail(claim, ERR, "WORKER_CRASHED", reason, TaskAttemptOutcome.WORKER_FAILURE, reason)


async def cancel(db: Db, *ids: str, include_running: bool = False) -> list[tuple[Any, ...]]:
    params = {"ids": list(ids), "include_running": include_running, "with_workflow": False, "result": ERR}
    return [tuple(row[:2]) for row in await (await db.execute(load("tasks/cancel"), params)).fetchall()]


async def heard(url: str, action: Any, *channels: str, want: int) -> list[tuple[str, str]]:
    """The notifications of these channels that the action causes."""
    async with await AsyncConnection.connect(url, autocommit=True) as ear:
        for channel in channels:
            await ear.execute(f"LISTEN {channel}".encode())
        await action()
        return sorted([(n.channel, n.payload) async for n in ear.notifies(timeout=10, stop_after=want)])


# Taking over, expiring, handing back


async def test_l06_a_takeover_is_a_claim_of_its_own(db: Db) -> None:
    old = await claimed(db)
    await db.execute(
        "UPDATE horsies_tasks SET claimed_at = '2020-01-01Z', claim_expires_at = '2020-01-02Z',"
        " next_retry_at = '2020-01-01Z'"
    )
    (new,) = await tasks.claim_expired(db, OTHER, ["default"], 10)
    row = await row_of(db, old.task_id)
    assert (row["status"], row["claimed"], row["claimed_by_worker_id"], row["claim_seq"]) == (
        "CLAIMED",
        True,
        "other",
        2,
    )
    assert (row["recovery_enrolled"], row["next_retry_at"]) == (True, None)
    assert row["claim_expires_at"] - row["claimed_at"] == OTHER.lease and row["claimed_at"] == row["updated_at"]
    assert (new.id, new.claim_seq) == (old.task_id, 2)
    assert await tasks.apply(db, ME.worker_id, [Requeue(old), Expire(old, ERR)]) == set()


@pytest.mark.parametrize("columns", [{"good_until": "2020-01-01Z"}, {"queue_name": "elsewhere"}, {"status": "RUNNING"}])
async def test_l06_only_an_eligible_claim_is_taken_over(db: Db, columns: dict[str, Any]) -> None:
    lapsed = {"status": "CLAIMED", "claimed": True, "claim_seq": 1, "claim_expires_at": "2020-01-01Z"}
    await given_task(db, **(lapsed | columns))
    assert await tasks.claim_expired(db, ME, ["default"], 10) == []


async def test_l09_nobody_else_starts_a_claim_even_with_its_number(db: Db) -> None:
    """A claim that was lost in a crash of the server gives its number to the next owner (L-03)."""
    claim = await claimed(db)
    assert await tasks.start(db, "other", "h", [claim], [1], ["c"]) == set()
    assert await tasks.start(db, "me", "h", [claim], [1], ["c"]) == {claim.task_id}
    assert await tasks.start(db, "me", "h", [claim], [1], ["c"]) == set(), "it runs already"


@pytest.mark.parametrize("end", [Complete(Claim("", 0), OK), Fail(Claim("", 0), ERR, "X", "m"), None])
async def test_l10_l11_l19_an_ended_task_is_not_claimed_but_keeps_the_evidence(
    db: Db, end: Complete | Fail | None
) -> None:
    claim = await running(db)
    before = await row_of(db, claim.task_id)
    if end is None:
        await cancel(db, claim.task_id, include_running=True)
    else:
        ends = end._replace(claim=claim) if isinstance(end, Complete) else dataclasses.replace(end, claim=claim)
        await tasks.apply(db, "me", [ends])
    row = await row_of(db, claim.task_id)
    assert (row["claimed"], row["claim_expires_at"]) == (False, None) and row["updated_at"] > before["updated_at"]
    kept = ("claimed_by_worker_id", "claimed_at", *RUN_COLUMNS)
    assert {name: row[name] for name in kept} == {name: before[name] for name in kept}


async def test_l08_a_claimed_task_expires_by_its_owner_and_keeps_its_evidence(db: Db) -> None:
    claim = await claimed(db, good_until=await now(db) + timedelta(hours=1))
    assert await tasks.apply(db, "me", [Expire(claim, ERR)]) == set(), "the deadline has not passed"
    await db.execute("UPDATE horsies_tasks SET good_until = now() - interval '1 s'")
    older = Claim(claim.task_id, 0)
    assert await tasks.apply(db, "other", [Expire(claim, ERR)]) == await tasks.apply(db, "me", [Expire(older, ERR)])
    assert (await row_of(db, claim.task_id))["status"] == "CLAIMED"
    assert await tasks.apply(db, "me", [Expire(claim, ERR)]) == {claim.task_id}
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["error_code"], row["result"]) == ("EXPIRED", "TASK_EXPIRED", ERR)
    assert (row["claimed"], row["claim_expires_at"], row["claimed_by_worker_id"]) == (False, None, "me")
    assert row["claimed_at"] is not None and await attempts_of(db, claim.task_id) == []


async def test_l08_a_running_task_does_not_expire(db: Db) -> None:
    claim = await running(db, good_until=await now(db) + timedelta(hours=1))
    await db.execute("UPDATE horsies_tasks SET good_until = now() - interval '1 s'")
    assert await tasks.apply(db, "me", [Expire(claim, ERR)]) == set()
    assert await recovery.expire_waiting(db) == set()
    assert await tasks.apply(db, "me", [Complete(claim, OK)]) == {claim.task_id}


async def test_t58_a_deadline_that_passed_ends_waiting_and_nothing_else(db: Db) -> None:
    waiting = await given_task(db, good_until="2020-01-01Z")
    held = await given_task(db, good_until="2020-01-01Z", status="CLAIMED", claimed=True, claimed_by_worker_id="me")
    assert await tasks.claim(db, ME, order()) == [], "not claimable any more, even before it is expired"
    assert len(await recovery.expire_waiting(db)) == 1
    row = await row_of(db, waiting)
    assert (row["status"], row["error_code"], row["claimed"]) == ("EXPIRED", "TASK_EXPIRED", False)
    assert json.loads(row["result"])["err"]["error_code"] == {"__builtin_task_code__": "TASK_EXPIRED"}
    assert (await row_of(db, held))["status"] == "CLAIMED", "its owner decides (L-08)"


async def test_l13a_a_running_task_that_never_began_loses_claim_and_run_but_no_retry(db: Db) -> None:
    claim = await running(db, OTHER, retry_count=1, max_retries=3)
    await holds.mark_finalizing(db, "other", [claim])
    before = await row_of(db, claim.task_id)
    assert before["recovery_enrolled"] is True and before["finalizing_at"] is not None
    assert await tasks.apply(db, "me", [Requeue(claim)]) == set()
    assert await tasks.apply(db, "other", [Requeue(claim)]) == {claim.task_id}
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["retry_count"], row["enqueued_at"]) == ("PENDING", 1, before["enqueued_at"])
    assert {name: row[name] for name in (*CLAIM_COLUMNS, *RUN_COLUMNS)} == dict.fromkeys((*CLAIM_COLUMNS, *RUN_COLUMNS))
    assert (row["claimed"], row["recovery_enrolled"]) == (False, False)
    assert await attempts_of(db, claim.task_id) == []


# Crashes and retries


async def test_l14_a_crash_that_is_retried_keeps_its_reason_until_a_success(db: Db) -> None:
    claim = await running(db, max_retries=1)
    await tasks.apply(db, "me", [Retry(claim, 0.0, crash(claim))])
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["retry_count"], row["error_code"]) == ("PENDING", 1, None)
    assert row["failed_reason"] == "killed by SIGKILL" and row["next_retry_at"] == row["enqueued_at"]
    (attempt,) = await attempts_of(db, claim.task_id)
    assert (attempt["outcome"], attempt["will_retry"], attempt["error_code"]) == (
        "WORKER_FAILURE", True, "WORKER_CRASHED"
    )  # fmt: skip
    assert attempt["failed_reason"] == "killed by SIGKILL"
    again = await claim_one(db)
    second = Claim(again.id, again.claim_seq)
    await tasks.start(db, "me", "h", [second], [8], ["c"])
    await tasks.apply(db, "me", [Complete(second, OK)])
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["failed_reason"], row["error_code"]) == ("COMPLETED", None, None)


@pytest.mark.parametrize("charged", [True, False])
async def test_l21_a_retry_that_is_due_at_once_rings(db: Db, database_url: str, charged: bool) -> None:
    claim = await running(db)

    async def retry() -> None:
        await tasks.apply(db, "me", [Retry(claim, 0.0, crash(claim), charged=charged)])

    found = await heard(database_url, retry, "task_new", "task_queue_default", want=2)
    assert found == [("task_new", claim.task_id), ("task_queue_default", claim.task_id)]


@pytest.mark.parametrize("is_recovery", [False, True], ids=["retries", "requeues"])
async def test_l21_t80_of_those_that_are_due_later_the_first_of_each_queue_rings(
    db: Db, database_url: str, is_recovery: bool
) -> None:
    claims: dict[tuple[str, float], Claim] = {}
    for queue, delay in (("left", 60.0), ("left", 30.0), ("right", 90.0), ("left", 45.0)):
        claims[queue, delay] = claim = await running(db)
        await db.execute("UPDATE horsies_tasks SET queue_name = %s WHERE id = %s", [queue, claim.task_id])

    async def set_later() -> None:
        moves = [
            Requeue(claim, delay) if is_recovery else Retry(claim, delay, crash(claim))
            for (_, delay), claim in claims.items()
        ]
        assert len(await tasks.apply(db, "me", moves)) == len(claims)
        await db.execute("NOTIFY task_new, 'the end'")

    found = await heard(database_url, set_later, "task_new", want=3)
    first = {claims["left", 30.0].task_id, claims["right", 90.0].task_id}
    assert {payload for _, payload in found} == first | {"the end"}


async def test_l22_a_recovery_due_after_the_deadline_is_a_crash(db: Db) -> None:
    claim = await running(db, good_until=await now(db) + timedelta(seconds=30))
    await tasks.apply(db, "me", [Retry(claim, 60.0, crash(claim), charged=False)])
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["error_code"], row["result"]) == ("FAILED", "WORKER_CRASHED", ERR)
    assert [a["will_retry"] for a in await attempts_of(db, claim.task_id)] == [False]


async def test_l22_a_task_that_waits_for_its_retry_expires_like_any_other_and_keeps_its_history(db: Db) -> None:
    claim = await running(db, max_retries=1, good_until=await now(db) + timedelta(hours=1))
    await tasks.apply(db, "me", [Retry(claim, 60.0, Fail(claim, ERR, "BAD", "m"))])
    await db.execute("UPDATE horsies_tasks SET good_until = now() - interval '1 s'")
    assert len(await recovery.expire_waiting(db)) == 1
    assert (await row_of(db, claim.task_id))["status"] == "EXPIRED"
    assert [(a["attempt"], a["outcome"]) for a in await attempts_of(db, claim.task_id)] == [(1, "FAILED")]


# Cancelling


async def test_l17_a_cancelled_task_is_never_claimed_nor_expired(db: Db) -> None:
    task_id = await given_task(db, good_until=await now(db) + timedelta(hours=1))
    assert await cancel(db, task_id) == [(task_id, "PENDING")]
    await db.execute("UPDATE horsies_tasks SET good_until = now() - interval '1 s', claim_expires_at = '2020-01-01Z'")
    assert await tasks.claim(db, ME, order()) == await tasks.claim_expired(db, ME, ["default"], 9) == []
    assert await recovery.expire_waiting(db) == set()
    row = await row_of(db, task_id)
    assert (row["status"], row["error_code"], row["result"]) == ("CANCELLED", "TASK_CANCELLED", ERR)


async def test_l18_a_claimed_task_is_cancelled_and_its_owner_cannot_start_it(db: Db, database_url: str) -> None:
    claim = await claimed(db)

    async def take_it_away() -> None:
        assert await cancel(db, claim.task_id) == [(claim.task_id, "CLAIMED")]

    told = await heard(database_url, take_it_away, "horsies_claim_lost", want=1)
    assert told == [("horsies_claim_lost", claim.task_id)]
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["claimed"], row["claim_expires_at"]) == ("CANCELLED", False, None)
    assert row["claimed_by_worker_id"] == "me", "evidence"
    # The row still names this owner and this claim; only its status keeps the code from being run.
    assert await tasks.start(db, "me", "h", [claim], [1], ["c"]) == set()
    assert await holds.renew(db, ME, [claim], timedelta(hours=1)) == set()
    assert await tasks.apply(db, "me", [Requeue(claim)]) == set()
    assert await row_of(db, claim.task_id) == row and await attempts_of(db, claim.task_id) == []


async def test_l19_the_result_of_a_cancelled_running_task_is_discarded(db: Db) -> None:
    claim = await running(db)
    assert await cancel(db, claim.task_id) == []
    assert await cancel(db, claim.task_id, include_running=True) == [(claim.task_id, "RUNNING")]
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["result"], row["completed_at"]) == ("CANCELLED", ERR, None)
    assert await tasks.apply(db, "me", [Complete(claim, OK)]) == set()
    assert await row_of(db, claim.task_id) == row and await attempts_of(db, claim.task_id) == []


# History and timestamps


async def test_l35_a_run_leaves_exactly_one_row_and_what_never_ran_leaves_none(db: Db) -> None:
    ran = await running(db)
    assert await tasks.apply(db, "me", [Complete(ran, OK)]) == {ran.task_id}
    written = await attempts_of(db, ran.task_id)
    assert await tasks.apply(db, "me", [Complete(ran, OK), Fail(ran, ERR, "X", "m")]) == set()
    assert await attempts_of(db, ran.task_id) == written and len(written) == 1
    handed_back, cancelled = await claimed(db, priority=1), None
    await tasks.apply(db, "me", [Requeue(handed_back)])
    cancelled = await running(db, priority=1)
    await cancel(db, cancelled.task_id, include_running=True)
    await given_task(db, good_until="2020-01-01Z")
    await recovery.expire_waiting(db)
    cursor = await db.execute("SELECT DISTINCT task_id FROM horsies_task_attempts")
    assert await cursor.fetchall() == [(ran.task_id,)]


@pytest.mark.parametrize("retried", [False, True])
async def test_l37_errors_are_failures_without_a_reason_crashes_worker_failures_with_one(db: Db, retried: bool) -> None:
    domain, died = await running(db), await running(db)
    ends: list[Fail] = [Fail(domain, ERR, "BAD", "it was bad"), crash(died)]
    await tasks.apply(db, "me", [Retry(end.claim, 1.0, end) if retried else end for end in ends])
    (one,), (two,) = await attempts_of(db, domain.task_id), await attempts_of(db, died.task_id)
    assert (one["outcome"], one["error_code"], one["failed_reason"]) == ("FAILED", "BAD", None)
    assert (two["outcome"], two["error_code"], two["failed_reason"]) == (
        "WORKER_FAILURE", "WORKER_CRASHED", "killed by SIGKILL"
    )  # fmt: skip
    assert one["will_retry"] is two["will_retry"] is retried


async def test_l40_each_instant_is_set_by_its_arrow_and_sent_at_by_none(db: Db) -> None:
    task_id = await given_task(db, sent_at="2020-01-01Z", enqueued_at="2020-01-02Z", max_retries=1)
    sent = (await row_of(db, task_id))["sent_at"]

    async def instants() -> set[str]:
        row = await row_of(db, task_id)
        assert row["sent_at"] == sent and row["updated_at"] >= row["created_at"]
        names = ("claimed_at", "started_at", "completed_at", "failed_at", "next_retry_at", "finalizing_at")
        return {name for name in names if row[name] is not None}

    row = await claim_one(db)
    assert await instants() == {"claimed_at"}
    first = Claim(row.id, row.claim_seq)
    await tasks.start(db, "me", "h", [first], [1], ["c"])
    assert await instants() == {"claimed_at", "started_at"}
    await holds.mark_finalizing(db, "me", [first])
    assert await instants() == {"claimed_at", "started_at", "finalizing_at"}
    enqueued = (await row_of(db, task_id))["enqueued_at"]
    await tasks.apply(db, "me", [Retry(first, 0.0, Fail(first, ERR, "BAD", "m"))])
    assert await instants() == {"next_retry_at"}
    assert (await row_of(db, task_id))["enqueued_at"] > enqueued
    row = await claim_one(db)
    assert await instants() == {"claimed_at"}, "the next claim ends the wait for a retry"
    second = Claim(row.id, row.claim_seq)
    await tasks.start(db, "me", "h", [second], [1], ["c"])
    await tasks.apply(db, "me", [Fail(second, ERR, "BAD", "m")])
    assert await instants() == {"claimed_at", "started_at", "failed_at"}


# Claims that are counted


async def test_w23_only_a_pass_that_counts_waits_for_the_claim_lock(db: Db, database_url: str) -> None:
    for _ in range(3):
        await given_task(db)
    async with await AsyncConnection.connect(database_url) as other:
        await other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key("horsies:claim")])
        assert len(await tasks.claim(db, ME, order(budget=1))) == 1
        await db.execute("SET lock_timeout = '200ms'")
        for counting in ({"caps": [5]}, {"cluster_cap": 5}):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                await tasks.claim(db, ME, order(budget=1, **counting))
        await other.rollback()
    assert len(await tasks.claim(db, ME, order(budget=1, cluster_cap=5))) == 1


async def test_w24_a_takeover_needs_no_place_under_a_cap(db: Db) -> None:
    """A cap that is filled with claims of the dead must not lock itself."""
    await claimed(db)
    await given_task(db)
    await db.execute("UPDATE horsies_tasks SET claim_expires_at = '2020-01-01Z' WHERE claimed")
    assert await tasks.claim(db, OTHER, order(caps=[1], cluster_cap=1)) == []
    assert len(await tasks.claim_expired(db, OTHER, ["default"], 5)) == 1


async def test_w21_renewals_name_the_claims_that_are_held(db: Db) -> None:
    """A claim whose answer was lost is unknown to its worker, and lapses."""
    known, stray = await claimed(db), await claimed(db)
    lapses = (await row_of(db, stray.task_id))["claim_expires_at"]
    longer = ME._replace(lease=timedelta(hours=2))
    assert await holds.renew(db, longer, [known], timedelta(hours=1)) == {known.task_id}
    assert (await row_of(db, stray.task_id))["claim_expires_at"] == lapses
    assert sorted(await holds.unknown_claims(db, "me", []), key=lambda c: c.task_id) == sorted(
        [known, stray], key=lambda c: c.task_id
    )
    assert await holds.unknown_claims(db, "me", [known]) == [stray]
    assert await holds.unknown_claims(db, "other", []) == []


async def test_l30_r11_an_older_claim_neither_beats_nor_marks(db: Db) -> None:
    """The same worker, one claim later: what it still believes of the claim before counts for nothing."""
    claim = await running(db)
    older = Claim(claim.task_id, claim.claim_seq - 1)
    assert await holds.heartbeat(db, "me", "host", [Beat(older, True, "me/7", 7)]) == set()
    await holds.mark_finalizing(db, "me", [older])
    assert (await row_of(db, claim.task_id))["finalizing_at"] is None
    assert await holds.heartbeat(db, "me", "host", [Beat(claim, True, "me/7", 7)]) == {claim.task_id}
    assert await (await db.execute("SELECT count(*) FROM horsies_heartbeats")).fetchone() == (1,)
