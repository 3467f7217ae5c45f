"""Each arrow of the state diagram as a statement: what it changes, what it leaves alone, and its fence."""

from __future__ import annotations

import asyncio
import uuid
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from horsies.core.sql import load
from horsies.core.store import holds, recovery, tasks
from horsies.core.store.holds import Beat
from horsies.core.store.tasks import Claimant, Claimed, ClaimOrder
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, Move, Requeue, Retry
from horsies.core.types.status import TaskAttemptOutcome

ME = Claimant("me", timedelta(seconds=60), enrolled=False)
OTHER = Claimant("other", timedelta(seconds=60), enrolled=True)
OK = '{"ok": 1}'
ERR = '{"err": {}}'

Db = AsyncConnection[Any]


async def given_task(db: Db, **columns: Any) -> str:
    """A row as plain SQL inserts it, with these columns."""
    row = {"id": str(uuid.uuid4()), "task_name": "t", "queue_name": "default", "args": "[]", **columns}
    names, marks = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    await db.execute(f"INSERT INTO horsies_tasks ({names}) VALUES ({marks})".encode(), row)  # noqa: S608
    return str(row["id"])


async def row_of(db: Db, task_id: str) -> dict[str, Any]:
    cursor = db.cursor(row_factory=dict_row)
    await cursor.execute("SELECT * FROM horsies_tasks WHERE id = %s", [task_id])
    row = await cursor.fetchone()
    assert row is not None
    return row


async def attempts_of(db: Db, task_id: str) -> list[dict[str, Any]]:
    cursor = db.cursor(row_factory=dict_row)
    await cursor.execute("SELECT * FROM horsies_task_attempts WHERE task_id = %s ORDER BY attempt", [task_id])
    return await cursor.fetchall()


def order(*queues: str, budget: int = 100, **more: Any) -> ClaimOrder:
    names = list(queues) or ["default"]
    fields: dict[str, Any] = {
        "queues": names, "takes": [budget] * len(names), "caps": [None] * len(names), "budget": budget,
        "sync_budget": budget, "cluster_cap": None, "hard": True, "async_names": [], **more,
    }  # fmt: skip
    return ClaimOrder(**fields)


async def claim_one(db: Db, who: Claimant = ME) -> Claimed:
    (row,) = await tasks.claim(db, who, order(budget=1))
    return row


async def running(db: Db, who: Claimant = ME, **columns: Any) -> Claim:
    """A task that this worker has claimed and started."""
    await given_task(db, **columns)
    row = await claim_one(db, who)
    claim = Claim(row.id, row.claim_seq)
    assert await tasks.start(db, who.worker_id, "host", [claim], [7], ["child-7"]) == {row.id}
    return claim


async def now(db: Db) -> datetime:
    row = await (await db.execute("SELECT now()")).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


# Claiming


async def test_l05_a_claim_sets_its_columns(db: Db) -> None:
    task_id = await given_task(db, next_retry_at=datetime(2020, 1, 1).astimezone())
    row = await claim_one(db, OTHER)
    stored = await row_of(db, task_id)
    assert (row.id, row.claim_seq, row.args) == (task_id, 1, "[]")
    assert stored["status"] == "CLAIMED" and stored["claimed"] is True and stored["claim_seq"] == 1
    assert stored["claimed_by_worker_id"] == "other" and stored["recovery_enrolled"] is True
    assert stored["next_retry_at"] is None
    assert stored["claim_expires_at"] - stored["claimed_at"] == timedelta(seconds=60)


@pytest.mark.parametrize(
    "columns",
    [
        {"enqueued_at": "2100-01-01Z"},
        {"next_retry_at": "2100-01-01Z"},
        {"good_until": "2020-01-01Z"},
        {"status": "COMPLETED"},
        {"status": "RUNNING", "claimed": True},
        {"queue_name": "elsewhere"},
    ],
)
async def test_w20_a_row_that_is_not_eligible_is_not_claimed(db: Db, columns: dict[str, Any]) -> None:
    await given_task(db, **columns)
    assert await tasks.claim(db, ME, order()) == []


@pytest.mark.parametrize(("workflow", "claimed"), [("RUNNING", 1), ("PAUSED", 0), ("CANCELLED", 0), ("FAILED", 0)])
async def test_w20_the_task_of_a_stopped_workflow_is_not_claimed(db: Db, workflow: str, claimed: int) -> None:
    await db.execute(
        "INSERT INTO horsies_workflows (id, name, definition_key, status, on_error, open_nodes, sent_at)"
        " VALUES ('wf', 'w', 'k', %s, 'FAIL', 1, now())",
        [workflow],
    )
    await given_task(db, workflow_id="wf")
    assert len(await tasks.claim(db, ME, order())) == claimed


async def test_w21_a_locked_row_is_skipped(db: Db, database_url: str) -> None:
    first, second = await given_task(db, priority=1), await given_task(db, priority=2)
    async with await AsyncConnection.connect(database_url) as other:
        await other.execute("SELECT 1 FROM horsies_tasks WHERE id = %s FOR UPDATE", [first])
        assert [row.id for row in await tasks.claim(db, ME, order())] == [second]


async def test_w22_order_is_queue_then_priority_then_age_then_id(db: Db) -> None:
    async def put(name: str, queue: str, priority: int, age: str) -> None:
        await given_task(db, id=name, queue_name=queue, priority=priority, enqueued_at=age)

    await put("e", "low", 1, "2020-01-01Z")
    await put("d", "high", 9, "2020-01-02Z")
    await put("c", "high", 9, "2020-01-01Z")
    await put("b", "high", 9, "2020-01-01Z")
    await put("a", "high", 5, "2020-01-09Z")
    rows = await tasks.claim(db, ME, order("high", "low"))
    assert [row.id for row in rows] == ["a", "b", "c", "d", "e"]
    await db.execute("UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE")
    assert [row.id for row in await tasks.claim(db, ME, order("high", "low", budget=2))] == ["a", "b"]


async def test_w24_caps_count_what_everybody_holds(db: Db) -> None:
    for _ in range(6):
        await given_task(db, queue_name="q")
        await given_task(db, queue_name="free")
    assert len(await tasks.claim(db, OTHER, order("q", budget=2))) == 2
    assert len(await tasks.claim(db, ME, order("q", caps=[3]))) == 1
    assert await tasks.claim(db, ME, order("q", caps=[3])) == []
    assert len(await tasks.claim(db, ME, order("q", "free", cluster_cap=5))) == 2
    assert await tasks.claim(db, ME, order("q", "free", cluster_cap=5)) == []


async def test_w24_soft_caps_count_running_tasks_only(db: Db) -> None:
    for _ in range(4):
        await given_task(db)
    await tasks.claim(db, OTHER, order(budget=2))
    assert len(await tasks.claim(db, ME, order(caps=[2], hard=False, budget=9))) == 2


async def test_w30a_no_more_sync_tasks_than_asked_for(db: Db) -> None:
    for i in range(3):
        await given_task(db, id=f"s{i}", priority=1)
        await given_task(db, id=f"a{i}", task_name="light", priority=2)
    rows = await tasks.claim(db, ME, order(sync_budget=1, async_names=["light"], concurrency=2))
    assert [row.id for row in rows] == ["s0", "a0", "a1", "a2"]


@pytest.mark.parametrize(("sync_first", "taken"), [(True, ["s0", "a0"]), (False, ["a0", "a1"])])
async def test_w30a_a_sync_task_leaves_room_for_async_ones_in_other_children_only(
    db: Db, sync_first: bool, taken: list[str]
) -> None:
    for i in range(2):
        await given_task(db, id=f"s{i}", priority=1 if sync_first else 3)
        await given_task(db, id=f"a{i}", task_name="light", priority=2)
    wanted = order(sync_budget=1, async_names=["light"], room=5, whole=1, concurrency=4)
    assert [row.id for row in await tasks.claim(db, ME, wanted)] == taken


@pytest.mark.parametrize(("age", "taken"), [(5, ["a0", "a1"]), (15, ["a0"]), (25, ["a0", "a1"]), (35, ["a0"])])
async def test_w30a_async_tasks_let_a_sync_one_that_waits_long_go_first(db: Db, age: int, taken: list[str]) -> None:
    await given_task(db, id="a0", task_name="light", priority=1)
    await given_task(db, id="s", priority=2)
    await given_task(db, id="a1", task_name="light", priority=3)
    await db.execute("UPDATE horsies_tasks SET enqueued_at = now() - make_interval(secs => %s) WHERE id = 's'", (age,))
    rows = await tasks.claim(db, ME, order(sync_budget=0, async_names=["light"], concurrency=2))
    assert [row.id for row in rows] == taken


async def test_w30a_in_the_turn_of_sync_tasks_nothing_passes_those_that_find_no_child(db: Db) -> None:
    await given_task(db, id="a0", task_name="light", priority=1)
    await given_task(db, id="s", priority=2)
    await given_task(db, id="a1", task_name="light", priority=3)
    in_turn = order(sync_budget=0, async_names=["light"], concurrency=2, is_sync_turn=True)
    assert [row.id for row in await tasks.claim(db, ME, in_turn)] == ["a0"]
    rows = await tasks.claim(db, ME, in_turn._replace(sync_budget=1))
    assert [row.id for row in rows] == ["s", "a1"], "this one finds a child"


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_w25b_a_claim_stops_at_the_task_that_passes_the_free_bytes(db: Db, concurrency: int) -> None:
    for nth in range(4):
        await given_task(db, id=f"t{nth}", args="[]", kwargs=f'{{"text":"{"é" * 50}"}}', priority=nth + 1)
    full = partial(order, concurrency=concurrency)
    rows = await tasks.claim(db, ME, full(free_bytes=200))
    assert [(row.id, row.size) for row in rows] == [("t0", 113), ("t1", 113)]
    assert full(free_bytes=200).is_answered_in_full(rows) and not full(free_bytes=227).is_answered_in_full(rows)
    assert [row.id for row in await tasks.claim(db, ME, full(free_bytes=1))] == ["t2"], "however large it is"
    assert [row.id for row in await tasks.claim(db, ME, full())] == ["t3"]


async def test_w25b_taking_over_lapsed_claims_keeps_to_the_free_bytes_too(db: Db) -> None:
    for nth in range(3):
        await given_task(db, id=f"t{nth}", args=f'["{"x" * 96}"]')
    assert len(await tasks.claim(db, OTHER, order())) == 3
    await db.execute("UPDATE horsies_tasks SET claim_expires_at = now() - interval '1 s'")
    assert [row.size for row in await tasks.claim_expired(db, ME, ["default"], 10, 101)] == [100, 100]
    assert len(await tasks.claim_expired(db, ME, ["default"], 10, 1)) == 1


async def test_w22a_the_queues_in_which_tasks_wait(db: Db) -> None:
    assert await tasks.busy_queues(db) == set()
    for queue in ("a", "b", "b", "c"):
        await given_task(db, queue_name=queue)
    assert len(await tasks.claim(db, ME, order("c"))) == 1
    assert await tasks.busy_queues(db) == {"a", "b"}


async def test_l06_a_lapsed_claim_is_taken_over_and_its_owner_fenced(db: Db) -> None:
    task_id = await given_task(db)
    old = await claim_one(db, OTHER)
    assert await tasks.claim_expired(db, ME, ["default"], 10) == []
    await db.execute("UPDATE horsies_tasks SET claim_expires_at = now() - interval '1 s'")
    (new,) = await tasks.claim_expired(db, ME, ["default"], 10)
    assert (new.id, new.claim_seq) == (task_id, 2)
    assert await tasks.start(db, "other", "h", [Claim(task_id, old.claim_seq)], [1], ["c"]) == set()
    assert (await row_of(db, task_id))["claimed_by_worker_id"] == "me"


# Starting


async def test_l09_start_sets_its_columns(db: Db) -> None:
    claim = await running(db)
    row = await row_of(db, claim.task_id)
    assert row["status"] == "RUNNING" and row["started_at"] is not None
    assert (row["worker_pid"], row["worker_hostname"], row["worker_process_name"]) == (7, "host", "child-7")


async def test_l25_a_task_past_its_deadline_does_not_start(db: Db) -> None:
    await given_task(db, good_until=await now(db) + timedelta(hours=1))
    row = await claim_one(db)
    claim = Claim(row.id, row.claim_seq)
    await db.execute("UPDATE horsies_tasks SET good_until = now() - interval '1 s'")
    assert await tasks.start(db, "me", "h", [claim], [1], ["c"]) == set()
    assert await tasks.apply(db, "me", [Expire(claim, ERR)]) == {row.id}
    stored = await row_of(db, row.id)
    assert (stored["status"], stored["error_code"], stored["result"]) == ("EXPIRED", "TASK_EXPIRED", ERR)
    assert stored["claimed"] is False and stored["claimed_by_worker_id"] == "me" and stored["claimed_at"] is not None
    assert await attempts_of(db, row.id) == []


# Ending


async def test_l10_complete_sets_its_columns_and_writes_the_attempt(db: Db) -> None:
    claim = await running(db)
    assert await tasks.apply(db, "me", [Complete(claim, OK)]) == {claim.task_id}
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["result"], row["error_code"], row["claimed"]) == ("COMPLETED", OK, None, False)
    assert row["completed_at"] is not None and row["claim_expires_at"] is None
    assert row["claimed_by_worker_id"] == "me" and row["worker_pid"] == 7
    (attempt,) = await attempts_of(db, claim.task_id)
    assert (attempt["attempt"], attempt["outcome"], attempt["will_retry"]) == (1, "COMPLETED", False)
    assert attempt["started_at"] == row["started_at"] and attempt["finished_at"] == row["completed_at"]
    assert (attempt["worker_id"], attempt["worker_pid"], attempt["worker_process_name"]) == ("me", 7, "child-7")


async def test_l11_fail_sets_its_columns_and_writes_the_attempt(db: Db) -> None:
    claim = await running(db)
    await tasks.apply(db, "me", [Fail(claim, ERR, "BAD", "it was bad")])
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["result"], row["error_code"], row["failed_reason"]) == ("FAILED", ERR, "BAD", None)
    assert row["failed_at"] is not None and row["claimed"] is False
    (attempt,) = await attempts_of(db, claim.task_id)
    assert (attempt["outcome"], attempt["error_code"], attempt["error_message"]) == ("FAILED", "BAD", "it was bad")
    assert attempt["failed_reason"] is None and attempt["will_retry"] is False


async def test_l15_a_crash_is_a_worker_failure_with_its_reason(db: Db) -> None:
    claim = await running(db)
    crash = Fail(claim, ERR, "WORKER_CRASHED", "x", TaskAttemptOutcome.WORKER_FAILURE, "killed by SIGKILL")
    await tasks.apply(db, "me", [crash])
    assert (await row_of(db, claim.task_id))["failed_reason"] == "killed by SIGKILL"
    (attempt,) = await attempts_of(db, claim.task_id)
    assert (attempt["outcome"], attempt["failed_reason"]) == ("WORKER_FAILURE", "killed by SIGKILL")


async def test_l12_retry_sets_its_columns_and_writes_the_attempt(db: Db) -> None:
    claim = await running(db, max_retries=3)
    await tasks.apply(db, "me", [Retry(claim, 60.0, Fail(claim, ERR, "BAD", "m"))])
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["retry_count"], row["error_code"], row["result"]) == ("PENDING", 1, None, None)
    assert row["next_retry_at"] == row["enqueued_at"] == row["updated_at"] + timedelta(seconds=60)
    for cleared in ("claimed_at", "claimed_by_worker_id", "claim_expires_at", "finalizing_at", "started_at",
                    "worker_pid", "worker_hostname", "worker_process_name"):  # fmt: skip
        assert row[cleared] is None, cleared
    assert row["claimed"] is False and row["recovery_enrolled"] is False and row["claim_seq"] == 1
    (attempt,) = await attempts_of(db, claim.task_id)
    assert (attempt["attempt"], attempt["outcome"], attempt["will_retry"]) == (1, "FAILED", True)
    assert (attempt["error_code"], attempt["worker_pid"]) == ("BAD", 7) and attempt["started_at"] is not None


async def test_l22_a_retry_due_after_the_deadline_is_a_failure(db: Db) -> None:
    claim = await running(db, max_retries=3, good_until=await now(db) + timedelta(seconds=30))
    await tasks.apply(db, "me", [Retry(claim, 60.0, Fail(claim, ERR, "BAD", "m"))])
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["retry_count"], row["error_code"]) == ("FAILED", 0, "BAD")
    assert [a["will_retry"] for a in await attempts_of(db, claim.task_id)] == [False]


async def test_l16_a_recovery_does_not_charge_the_attempt(db: Db) -> None:
    claim = await running(db, max_retries=3)
    crash = Fail(claim, ERR, "WORKER_CRASHED", "x", TaskAttemptOutcome.WORKER_FAILURE, "recovered")
    await tasks.apply(db, "me", [Retry(claim, 30.0, crash, charged=False)])
    row = await row_of(db, claim.task_id)
    assert (row["status"], row["retry_count"], row["next_retry_at"]) == ("PENDING", 0, None)
    assert row["enqueued_at"] == row["updated_at"] + timedelta(seconds=30)
    assert row["failed_reason"] == "recovered"


async def test_l36_the_attempt_number_stays_unique_when_a_recovery_was_not_charged(db: Db) -> None:
    claim = await running(db)
    crash = Fail(claim, ERR, "WORKER_CRASHED", "x", TaskAttemptOutcome.WORKER_FAILURE, "recovered")
    await tasks.apply(db, "me", [Retry(claim, 0.0, crash, charged=False)])
    row = await claim_one(db)
    again = Claim(row.id, row.claim_seq)
    await tasks.start(db, "me", "h", [again], [8], ["c"])
    await tasks.apply(db, "me", [Complete(again, OK)])
    found = [(a["attempt"], a["outcome"]) for a in await attempts_of(db, row.id)]
    assert found == [(1, "WORKER_FAILURE"), (2, "COMPLETED")]


@pytest.mark.parametrize("started", [False, True])
async def test_l13_requeue_clears_the_claim_and_nothing_else(db: Db, started: bool) -> None:
    await given_task(db, retry_count=2, max_retries=5)
    row = await claim_one(db)
    claim = Claim(row.id, row.claim_seq)
    before = await row_of(db, row.id)
    if started:
        await tasks.start(db, "me", "h", [claim], [1], ["c"])
    assert await tasks.apply(db, "me", [Requeue(claim)]) == {row.id}
    after = await row_of(db, row.id)
    assert (after["status"], after["retry_count"], after["enqueued_at"]) == ("PENDING", 2, before["enqueued_at"])
    assert after["claimed"] is False and after["claimed_by_worker_id"] is None and after["started_at"] is None
    assert await attempts_of(db, row.id) == []


async def test_l21_requeue_rings_for_what_is_due(db: Db, database_url: str) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as ear:
        task_id = await given_task(db)
        row = await claim_one(db)
        await ear.execute("LISTEN task_new; ")
        await ear.execute("LISTEN task_queue_default")
        await tasks.apply(db, "me", [Requeue(Claim(row.id, row.claim_seq))])
        heard = [(n.channel, n.payload) async for n in ear.notifies(timeout=10, stop_after=2)]
    assert sorted(heard) == [("task_new", task_id), ("task_queue_default", task_id)]


# The fence


def _moves(claim: Claim) -> list[Move]:
    fail = Fail(claim, ERR, "X", "m")
    return [Complete(claim, OK), fail, Retry(claim, 1.0, fail), Requeue(claim)]


@pytest.mark.parametrize("kind", range(4))
async def test_l33_a_move_of_another_owner_or_an_older_claim_changes_nothing(db: Db, kind: int) -> None:
    claim = await running(db)
    before = await row_of(db, claim.task_id)
    older = Claim(claim.task_id, claim.claim_seq - 1)
    assert await tasks.apply(db, "other", [_moves(claim)[kind]]) == set()
    assert await tasks.apply(db, "me", [_moves(older)[kind]]) == set()
    assert await row_of(db, claim.task_id) == before
    assert await attempts_of(db, claim.task_id) == []


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED", "EXPIRED"])
@pytest.mark.parametrize("kind", range(4))
async def test_l03_a_terminal_row_never_changes_again(db: Db, status: str, kind: int) -> None:
    claim = await running(db)
    await db.execute("UPDATE horsies_tasks SET status = %s, claimed = FALSE", [status])
    before = await row_of(db, claim.task_id)
    assert await tasks.apply(db, "me", [_moves(claim)[kind]]) == set()
    assert await recovery.expire_waiting(db) == set()
    assert await row_of(db, claim.task_id) == before


async def test_l31_a_batch_of_several_kinds_is_one_transaction(db: Db) -> None:
    good, bad = await running(db), await running(db)
    await db.execute("ALTER TABLE horsies_task_attempts ADD CHECK (error_code IS DISTINCT FROM 'NO')")
    with pytest.raises(Exception, match="check constraint"):
        await tasks.apply(db, "me", [Complete(good, OK), Fail(bad, ERR, "NO", "m")])
    assert {(await row_of(db, c.task_id))["status"] for c in (good, bad)} == {"RUNNING"}
    assert await attempts_of(db, good.task_id) == []


async def test_d63_a_batch_of_several_kinds_and_a_cancel_never_deadlock(db: Db, database_url: str) -> None:
    """The batch completes the later id and fails the earlier one; the cancel takes them the other way round."""
    for _ in range(20):
        claims = sorted([await running(db), await running(db)], key=lambda c: c.task_id)
        moves = [Complete(claims[1], OK), Fail(claims[0], ERR, "X", "m")]
        async with await AsyncConnection.connect(database_url, autocommit=True) as other:
            params = {
                "ids": [c.task_id for c in claims],
                "include_running": True,
                "with_workflow": False,
                "result": ERR,
            }
            moved, cancelled = await asyncio.gather(
                tasks.apply(db, "me", moves), other.execute(load("tasks/cancel"), params)
            )
            assert len(moved) + len(await cancelled.fetchall()) == 2


# Expiry, heartbeats, leases


async def test_l07_waiting_tasks_past_their_deadline_expire_in_bounded_steps(db: Db) -> None:
    for _ in range(5):
        await given_task(db, good_until="2020-01-01Z")
    alive = await given_task(db, good_until="2100-01-01Z")
    assert [len(await recovery.expire_waiting(db, 3)) for _ in range(3)] == [3, 2, 0]
    assert (await row_of(db, alive))["status"] == "PENDING"
    cursor = await db.execute("SELECT DISTINCT status, error_code, result FROM horsies_tasks WHERE id <> %s", [alive])
    ((status, code, result),) = await cursor.fetchall()
    assert (status, code) == ("EXPIRED", "TASK_EXPIRED")
    assert '"__builtin_task_code__":"TASK_EXPIRED"' in result.replace(" ", "")


async def test_r11_heartbeats_are_written_only_for_claims_that_are_held(db: Db) -> None:
    mine, lost = await running(db), await running(db, OTHER)
    beats = [Beat(mine, True, "me/7", 7), Beat(lost, True, "me/8", 8)]
    assert await holds.heartbeat(db, "me", "host", beats) == {mine.task_id}
    cursor = await db.execute("SELECT task_id, sender_id, role, hostname, pid FROM horsies_heartbeats")
    assert await cursor.fetchall() == [(mine.task_id, "me/7", "runner", "host", 7)]


async def test_r10_w70_the_role_follows_the_state_and_an_unvouched_claim_gets_no_row(db: Db) -> None:
    await given_task(db)
    row = await claim_one(db)
    silent = await running(db)
    beats = [Beat(Claim(row.id, row.claim_seq), True, "me", 1), Beat(silent, False, "me/7", 7)]
    assert await holds.heartbeat(db, "me", "host", beats) == {row.id, silent.task_id}
    cursor = await db.execute("SELECT task_id, role FROM horsies_heartbeats")
    assert await cursor.fetchall() == [(row.id, "claimer")]


async def test_w27_leases_are_renewed_for_young_claims_only(db: Db) -> None:
    ids = [await given_task(db) for _ in range(2)]
    rows = await tasks.claim(db, ME, order())
    await db.execute("UPDATE horsies_tasks SET claimed_at = now() - interval '1 h' WHERE id = %s", [ids[0]])
    claims = [Claim(row.id, row.claim_seq) for row in rows]
    longer = ME._replace(lease=timedelta(minutes=5))
    assert await holds.renew(db, longer, claims, timedelta(minutes=3)) == {ids[1]}
    renewed = await row_of(db, ids[1])
    assert renewed["claim_expires_at"] == renewed["updated_at"] + timedelta(minutes=5)
    assert await holds.renew(db, OTHER, claims, timedelta(hours=3)) == set()


async def test_l30_the_finalizing_mark_is_guarded_by_the_claim(db: Db) -> None:
    claim = await running(db)
    await holds.mark_finalizing(db, "other", [claim])
    assert (await row_of(db, claim.task_id))["finalizing_at"] is None
    await holds.mark_finalizing(db, "me", [claim])
    assert (await row_of(db, claim.task_id))["finalizing_at"] is not None
