"""What workers know, what they leave, and when nobody knows a task: statement by statement. Where ages matter, the
clock of the transaction stands still."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.sql import texts
from horsies.core.store import names, retention, tasks, workers
from horsies.core.store.names import BEGIN, END, Line, UnknownTask
from horsies.core.store.workers import WHENEVER, Gone
from horsies.core.tasks.moves import Claim, Fail, Leave
from horsies.core.types.status import TaskStatus
from tests.factories import given_task, given_worker, task_row

Db = AsyncConnection[Any]
GRACE = timedelta(minutes=10)
OURS = texts(["ours"])


async def know(db: Db, names_hash: str, *known: str, since: float = 3600, seen: float = 0) -> None:
    """A set of names that has been there for so many seconds, and was last seen so many seconds ago."""
    await db.execute(
        "INSERT INTO horsies_known_names VALUES (%s, %s, now() - make_interval(secs => %s),"
        " now() - make_interval(secs => %s))",
        [names_hash, list(known), since, seen],
    )


async def fails(db: Db, task_id: str, grace: timedelta = GRACE) -> bool:
    failed = await names.fail_unknown(db, [UnknownTask(task_id, "theirs")], "mine", grace)
    return task_id in {task.id for task in failed}


async def orphan(db: Db, age: str = "1 hour") -> str:
    row = await (await db.execute("SELECT now() - %s::interval", [age])).fetchone()
    assert row is not None
    return await given_task(db, task_name="theirs", enqueued_at=row[0])


async def test_l11a_o31_a_task_that_nobody_has_known_for_the_grace_fails(frozen: Db) -> None:
    task_id = await orphan(frozen)
    await know(frozen, "mine", "ours")
    await know(frozen, "gone", "theirs", seen=601)
    assert await fails(frozen, task_id)
    row = await task_row(frozen, task_id)
    assert (row["status"], row["error_code"], row["claim_seq"]) == ("FAILED", "WORKER_RESOLUTION_ERROR", 0)
    assert "'theirs' for 600 s" in row["failed_reason"] and "WORKER_RESOLUTION_ERROR" in row["result"]


@pytest.mark.parametrize(
    ("why", "known", "seen", "since", "age"),
    [
        ("a worker knew it lately", "theirs", 599, 3600, "1 hour"),
        ("it is not due for so long", "other", 0, 3600, "9 minutes"),
        ("nobody has watched for so long", "other", 0, 599, "1 hour"),
    ],
)
async def test_o31_d57_otherwise_it_waits(
    frozen: Db, why: str, known: str, seen: float, since: float, age: str
) -> None:
    task_id = await orphan(frozen, age)
    await know(frozen, "mine", "ours", since=since)
    await know(frozen, "their hash", known, seen=seen)
    assert not await fails(frozen, task_id), why


async def test_o31_a_live_worker_counts_however_long_ago_its_names_were_refreshed(frozen: Db) -> None:
    task_id = await orphan(frozen)
    await know(frozen, "mine", "ours")
    await know(frozen, "slow", "theirs", seen=5_000)
    slow = {"recovery": Jsonb({"worker_recovery": {"heartbeat_interval": 3_600_000}}), "names_hash": "slow"}
    await given_worker(frozen, "w", last_heartbeat_at="now", **slow)
    assert not await fails(frozen, task_id)
    await frozen.execute("UPDATE horsies_workers SET names_hash = 'mine'")
    assert await fails(frozen, task_id)


async def test_o31_a_worker_that_does_not_say_what_it_knows_may_know_it(frozen: Db) -> None:
    task_id = await orphan(frozen)
    await know(frozen, "mine", "ours")
    await given_worker(frozen, "older")
    assert not await fails(frozen, task_id)
    await frozen.execute("UPDATE horsies_workers SET last_heartbeat_at = now() - interval '2 minutes'")
    assert await fails(frozen, task_id)


async def test_d57_a_refresh_keeps_the_names_and_notices_a_long_pause(db: Db) -> None:
    row: dict[str, Any] = {
        **dict.fromkeys(("hostname", "pid", "boot_id", "pid_namespace", "process_start", "liveness_key", "recovery")),
        "worker_id": "w", "age": 0.0, "sweeping": False, "queues": [], "metadata": {}, "names_hash": "h",
        "names": ["a"], "pause": 300.0,
    }  # fmt: skip
    assert (await workers.register(db, row))[1] is False
    again = {**row, "names": None}
    assert (await workers.register(db, again))[1] is True
    for age, is_interrupted in ((200, False), (400, True)):
        await db.execute(
            "UPDATE horsies_known_names SET since = now() - interval '1 hour',"
            " seen_at = now() - make_interval(secs => %s)", [age],
        )  # fmt: skip
        await workers.register(db, again)
        [found] = await (
            await db.execute("SELECT since > now() - interval '1 minute', seen_at > now() - interval '1 minute', names"
                             " FROM horsies_known_names")
        ).fetchall()  # fmt: skip
        assert found == (is_interrupted, True, ["a"])
    await db.execute("UPDATE horsies_known_names SET seen_at = now() - interval '1 hour'")
    await workers.unregister(db, "w")
    [left] = await (
        await db.execute("SELECT seen_at > now() - interval '1 minute' FROM horsies_known_names")
    ).fetchall()
    assert left == (True,), "it was known until now"
    await names.prune(db, timedelta(seconds=0), 10)
    assert (await (await db.execute("SELECT count(*) FROM horsies_known_names")).fetchone()) == (0,)


async def forget(db: Db, worker_id: str) -> None:
    assert await workers.forget(db, [Gone(worker_id, WHENEVER)]) == {worker_id}


async def delete_row(db: Db, worker_id: str) -> None:
    assert await workers.delete_row(db, worker_id)


async def prune(db: Db, worker_id: str) -> None:
    assert await retention.prune_workers(db, timedelta(0)) == 1


async def by_hand(db: Db, worker_id: str) -> None:
    await db.execute("DELETE FROM horsies_workers WHERE worker_id = %s", [worker_id])


DELETIONS = [forget, delete_row, prune, workers.unregister, by_hand]


async def known_for(db: Db, names_hash: str) -> float:
    """How many seconds ago a worker with these names was last seen."""
    query = "SELECT extract(epoch FROM now() - seen_at)::float8 FROM horsies_known_names WHERE names_hash = %s"
    row = await (await db.execute(query, [names_hash])).fetchone()
    assert row is not None
    return float(row[0])


async def silent_worker(db: Db, silent: float, **columns: Any) -> str:
    await given_worker(db, "dead", names_hash="gone", **columns)
    await db.execute("UPDATE horsies_workers SET last_heartbeat_at = now() - make_interval(secs => %s)", [silent])
    return "dead"


@pytest.mark.parametrize("delete", DELETIONS)
@pytest.mark.parametrize(
    ("why", "silent", "seen", "recovery", "ago"),
    [
        ("it was alive until now, as far as its heartbeats tell", 29, 34, None, 0),
        ("it has not been alive for long", 290, 295, None, 200),
        ("its heartbeats were rarer", 290, 295, {"worker_recovery": {"heartbeat_interval": 90_000}}, 20),
        ("another one has had these names since", 290, 7, None, 7),
    ],
)
async def test_o31_d57_the_grace_counts_from_when_a_dead_worker_stopped_being_alive(
    frozen: Db, delete: Any, why: str, silent: float, seen: float, recovery: Any, ago: float
) -> None:
    await know(frozen, "gone", "theirs", seen=seen)
    await delete(frozen, await silent_worker(frozen, silent, recovery=Jsonb(recovery)))
    assert await known_for(frozen, "gone") == ago, why


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_o31_the_grace_is_the_same_whether_the_row_of_the_dead_worker_is_there_or_not(
    frozen: Db, is_deleted: bool
) -> None:
    task_id = await orphan(frozen)
    await know(frozen, "mine", "ours")
    await know(frozen, "gone", "theirs", seen=695)
    dead = await silent_worker(frozen, 689)
    if is_deleted:
        await forget(frozen, dead)
    assert not await fails(frozen, task_id), "it may have been alive 599 seconds ago"
    await frozen.execute("UPDATE horsies_workers SET last_heartbeat_at = last_heartbeat_at - interval '1 s'")
    await frozen.execute("UPDATE horsies_known_names SET seen_at = seen_at - interval '1 s' WHERE names_hash = 'gone'")
    assert await fails(frozen, task_id)


@pytest.mark.parametrize("delete", DELETIONS)
async def test_d57_whoever_deletes_the_row_of_a_worker_waits_for_no_names_and_sets_no_time_back(
    db: Db, database_url: str, delete: Any
) -> None:
    await know(db, "gone", "theirs", seen=-60)
    await delete(db, await silent_worker(db, 29))
    assert await known_for(db, "gone") < -30, "the clock was set back"
    await silent_worker(db, 29)
    async with await AsyncConnection.connect(database_url) as other:
        await other.execute("SELECT 1 FROM horsies_known_names FOR UPDATE")
        await db.execute("SET lock_timeout = '1s'")  # waiting would be the mistake
        await delete(db, "dead")


async def test_o31_workers_of_one_set_of_names_that_are_swept_together_count_by_the_last(frozen: Db) -> None:
    await know(frozen, "gone", "theirs", seen=900)
    for name, silent in (("a", 800), ("b", 500), ("c", 700)):
        await given_worker(frozen, name, names_hash="gone")
        await frozen.execute(
            "UPDATE horsies_workers SET last_heartbeat_at = now() - make_interval(secs => %s) WHERE worker_id = %s",
            [silent, name],
        )
    await given_worker(frozen, "older")
    gone = [Gone(name, WHENEVER) for name in ("a", "b", "c", "older")]
    assert await workers.forget(frozen, gone) == {"a", "b", "c", "older"}
    assert await known_for(frozen, "gone") == 410


async def test_l13b_d58_a_task_is_left_until_the_grace_is_over(db: Db) -> None:
    task_id = await given_task(db, status=TaskStatus.RUNNING)
    failure = Fail(Claim(task_id, 1), "{}", "WORKER_SERIALIZATION_ERROR", "cannot be read")
    assert await tasks.apply_kinds(db, "w1", [Leave(Claim(task_id, 1), 60.0, failure)]) == {task_id: Leave}
    row = await task_row(db, task_id)
    assert (row["status"], row["retry_count"], row["claimed"]) == ("PENDING", 0, False)
    due = "SELECT enqueued_at > updated_at AND enqueued_at < updated_at + interval '2 s' FROM horsies_tasks"
    assert await (await db.execute(due)).fetchone() == (True,)
    [noted] = await (await db.execute("SELECT task_id, reason FROM horsies_left_tasks")).fetchall()
    assert noted == (task_id, "cannot be read")
    await db.execute("UPDATE horsies_left_tasks SET left_at = now() - interval '1 hour'")
    await db.execute("UPDATE horsies_tasks SET status = 'RUNNING', claimed = TRUE, claimed_by_worker_id = 'w1'")
    assert await tasks.apply_kinds(db, "w1", [Leave(Claim(task_id, 1), 60.0, failure)]) == {task_id: Fail}
    assert (await task_row(db, task_id))["error_code"] == "WORKER_SERIALIZATION_ERROR"
    await names.prune(db, timedelta(minutes=1), 10)
    assert (await (await db.execute("SELECT count(*) FROM horsies_left_tasks")).fetchone()) == (0,)


async def test_w29a_a_look_finds_the_first_known_task_and_a_claim_reads_only_that_part(db: Db) -> None:
    who, order = tasks.Claimant("w1", timedelta(minutes=1), False), an_order("default", "other")
    ids = [await given_task(db, id=f"{n:02}", task_name="ours" if n in (3, 5, 8) else "theirs") for n in range(10)]
    [first] = await names.look(db, ["default", "other"], OURS, {}, 6)
    assert (first.level, first.size, first.first) == (("default", 100), 6, 4)
    assert first.passed is not None and first.passed[1] == ids[2] and first.last[1] == ids[5]
    assert (first.others, first.other_id) == (("theirs",), ids[0])
    line = Line(OURS, ((first.level, first.passed, first.last),))
    assert [row.id for row in await tasks.claim(db, who, order, line=line)] == [ids[3], ids[5]]
    [rest] = await names.look(db, ["default"], OURS, {first.level: first.last}, 6)
    assert (rest.size, rest.first) == (4, 3)
    whole = Line(OURS, ((rest.level, BEGIN, END),))
    assert [row.id for row in await tasks.claim(db, who, order, line=whole)] == [ids[8]]
    assert await tasks.claim(db, who, order, [ids[0]], line=Line(OURS, ())) == []


async def test_o31_old_tasks_of_other_names_are_found_step_by_step(db: Db) -> None:
    for n in range(5):
        await given_task(db, id=f"{n}", task_name="ours" if n == 1 else "theirs", enqueued_at=f"2026-01-01T00:00:0{n}Z")
    await given_task(db, id="young", task_name="theirs")
    found, more = await names.find_unknown(db, ["default"], OURS, GRACE, {}, 3)
    assert [task.id for task in found] == ["0", "2"] and set(more) == {("default", 100)}
    found, more = await names.find_unknown(db, ["default"], OURS, GRACE, more, 3)
    assert ([task.id for task in found], more) == (["3", "4"], {})


def an_order(*queues: str) -> tasks.ClaimOrder:
    count = len(queues)
    return tasks.ClaimOrder(list(queues), [10] * count, [None] * count, 10, 10, None, True, [])
