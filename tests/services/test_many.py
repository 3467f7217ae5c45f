"""What people do to many tasks at once (M-49a): a dry run, then batches; two people and workers at the same time."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db import IN_BULK
from horsies.core.monitoring import many as acting
from horsies.core.producer.enqueue import new_task_id
from horsies.core.store import many, tasks
from horsies.core.tasks.moves import Claim, Complete
from horsies.core.types.status import TaskStatus
from horsies.monitoring import BulkResult, MonitoringErrorCode, cancel_tasks, move_tasks, rerun_task, rerun_tasks
from tests.doorbell_support import listening
from tests.factories import count_tasks, given_task, given_workflow, task_row

Db = AsyncConnection[Any]
PENDING, CLAIMED, RUNNING = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING
COMPLETED, FAILED, CANCELLED, EXPIRED = (
    TaskStatus.COMPLETED,
    TaskStatus.FAILED,
    TaskStatus.CANCELLED,
    TaskStatus.EXPIRED,
)


async def one_of_each(db: Db) -> dict[TaskStatus, str]:
    return {status: await given_task(db, status=status) for status in TaskStatus}


async def node(db: Db, status: TaskStatus = PENDING, **columns: Any) -> str:
    return await given_task(db, status=status, workflow_id=await given_workflow(db), **columns)


async def statuses(db: Db) -> Counter[str]:
    cursor = await db.execute("SELECT status, count(*) FROM horsies_tasks GROUP BY 1")
    return Counter(dict(await cursor.fetchall()))


async def test_m49a_tasks_with_ids_are_cancelled_and_the_others_told_of(broker: PostgresBroker, db: Db) -> None:
    ids = await one_of_each(db)
    of_workflow = await node(db)
    named = [*ids.values(), of_workflow, "nobody", "a\0b", ids[PENDING]]
    would = (await cancel_tasks(broker, named, dry_run=True)).unwrap()
    skipped = {"TASK_NOT_CANCELLABLE": 5, "TASK_IS_WORKFLOW_TASK": 1, "TASK_NOT_FOUND": 2}
    assert (would.dry_run, would.changed, would.skipped) == (True, 2, skipped)
    assert {one.task_id for one in would.examples} == {ids[PENDING], ids[CLAIMED]}
    assert (await statuses(db))["CANCELLED"] == 1, "nothing was done"
    done = (await cancel_tasks(broker, named)).unwrap()
    assert (done.dry_run, done.changed, done.skipped) == (False, 2, skipped)
    assert set(done.changed_ids) == {ids[PENDING], ids[CLAIMED]} and done.is_complete
    assert (await task_row(db, of_workflow))["status"] == "PENDING"
    again = (await cancel_tasks(broker, [ids[PENDING]], include_running=True)).unwrap()
    assert (again.changed, again.skipped) == (0, {"TASK_NOT_CANCELLABLE": 1})
    assert (await cancel_tasks(broker, [ids[RUNNING]], include_running=True)).unwrap().changed == 1


async def test_m49a_d59_cancelled_tasks_are_counted_in_the_statistics(broker: PostgresBroker, db: Db) -> None:
    ids = [await given_task(db, queue_name="mail", task_name="send") for _ in range(3)]
    await cancel_tasks(broker, ids[:2])
    await broker.cancel_task_async(ids[2])
    cursor = await db.execute("SELECT queue_name, task_name, error_code, sum(cancelled)::int FROM horsies_rollup"
                              " WHERE span = 60 GROUP BY 1, 2, 3")  # fmt: skip
    assert await cursor.fetchall() == [("mail", "send", "TASK_CANCELLED", 3)]


async def test_m48_a_cancellation_stands_if_it_cannot_be_counted(broker: PostgresBroker, db: Db) -> None:
    first, second = await given_task(db), await given_task(db)
    await db.execute("ALTER TABLE horsies_rollup RENAME TO elsewhere")
    assert (await broker.cancel_task_async(first)).unwrap().task_id == first
    assert (await cancel_tasks(broker, [second])).unwrap().changed == 1


async def test_m49a_a_group_is_cancelled(broker: PostgresBroker, db: Db) -> None:
    for queue in ("mail", "video"):
        for status in (PENDING, PENDING, CLAIMED, RUNNING, FAILED):
            await given_task(db, status=status, queue_name=queue)
    await node(db, queue_name="mail")
    would = (await cancel_tasks(broker, queues=["mail"], dry_run=True)).unwrap()
    assert (would.changed, would.is_exact, len(would.examples)) == (3, True, 3)
    assert (await cancel_tasks(broker, queues=["mail"])).unwrap().changed == 3
    assert await statuses(db) == {"PENDING": 3, "CLAIMED": 1, "RUNNING": 2, "FAILED": 2, "CANCELLED": 3}
    assert (await cancel_tasks(broker, queues=["mail"], statuses=[RUNNING], include_running=True)).unwrap().changed == 1
    assert (await cancel_tasks(broker, task_names=["none"])).unwrap() == BulkResult(False)


async def test_m49a_a_group_is_sent_again_each_task_once(broker: PostgresBroker, db: Db) -> None:
    failed = {"status": FAILED, "error_code": "BAD", "failed_at": "now"}
    ids = [await given_task(db, id=new_task_id(), args=f"[{n}]", **failed) for n in range(5)]
    await given_task(db, status=FAILED, error_code="OTHER", failed_at="now")
    await node(db, FAILED, error_code="BAD", failed_at="now")
    would = (await rerun_tasks(broker, error_codes=["BAD"], dry_run=True)).unwrap()
    assert (would.changed, would.is_exact) == (5, True) and await count_tasks(db) == 7
    done = (await rerun_tasks(broker, error_codes=["BAD"])).unwrap()
    assert (done.changed, set(done.changed_ids), done.skipped) == (5, set(ids), {})
    for old, new in zip(done.changed_ids, done.new_ids, strict=True):
        row = await task_row(db, new)
        assert row["args"] == (await task_row(db, old))["args"] and row["status"] == "PENDING"
        assert f'"rerun_of": "{old}"' in row["task_options"] and row["idempotency_key"] == f"rerun of {old}"
        assert uuid.UUID(new).version == 7 and new > max(ids), "ids grow with time"
    again = (await rerun_tasks(broker, error_codes=["BAD"])).unwrap()
    assert (again.changed, again.skipped) == (0, {"TASK_ALREADY_RERUN": 5}) and await count_tasks(db) == 12
    one_more = (await rerun_task(broker, ids[0])).unwrap()
    assert one_more.task_id not in done.new_ids, "one task can be sent again as often as somebody wants"


async def test_m49a_tasks_with_ids_are_sent_again_and_the_others_told_of(broker: PostgresBroker, db: Db) -> None:
    ids = await one_of_each(db)
    named = [*ids.values(), await node(db, FAILED), "nobody"]
    skipped = {"TASK_HAS_NOT_ENDED": 3, "TASK_HAS_COMPLETED": 1, "TASK_IS_WORKFLOW_TASK": 1, "TASK_NOT_FOUND": 1}
    would = (await rerun_tasks(broker, named, dry_run=True)).unwrap()
    done = (await rerun_tasks(broker, named)).unwrap()
    assert (would.changed, would.skipped) == (done.changed, done.skipped) == (3, skipped)
    assert set(done.changed_ids) == {ids[FAILED], ids[CANCELLED], ids[EXPIRED]}


async def test_m49a_a_dry_run_knows_what_was_sent_again_before(broker: PostgresBroker, db: Db) -> None:
    first, second = [await given_task(db, status=FAILED, task_name="pay", failed_at="now") for _ in range(2)]
    await given_task(db, task_name="other", idempotency_key=f"rerun of {second}")  # of another name: another key
    assert (await rerun_tasks(broker, [first])).unwrap().changed == 1
    named = [first, second, "nobody"]
    would = (await rerun_tasks(broker, named, dry_run=True)).unwrap()
    done = (await rerun_tasks(broker, named)).unwrap()
    skipped = {"TASK_ALREADY_RERUN": 1, "TASK_NOT_FOUND": 1}
    assert (would.changed, would.skipped) == (done.changed, done.skipped) == (1, skipped)
    assert [one.task_id for one in would.examples] == [second]
    would = (await rerun_tasks(broker, named, dry_run=True)).unwrap()
    assert (would.changed, would.skipped, would.examples) == (0, {**skipped, "TASK_ALREADY_RERUN": 2}, ())
    third = await given_task(db, status=FAILED, task_name="pay", failed_at="now")
    group = (await rerun_tasks(broker, task_names=["pay"], statuses=[FAILED], dry_run=True)).unwrap()
    assert (group.changed, group.skipped) == (1, {"TASK_ALREADY_RERUN": 2}) and group.is_complete
    assert [one.task_id for one in group.examples] == [third]


async def test_m49a_a_dry_run_of_a_large_group_says_at_most_how_many(broker: PostgresBroker, db: Db) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, failed_at)"
        " SELECT gen_random_uuid()::text, 'pay', 'FAILED', now() FROM generate_series(1, 501)"
    )
    assert (await rerun_tasks(broker, task_names=["pay"], most=5)).unwrap().changed == 5
    group = (await rerun_tasks(broker, task_names=["pay"], dry_run=True)).unwrap()
    assert 496 <= group.changed <= 501 and not group.is_complete


async def test_m49a_a_task_that_was_sent_again_by_itself_is_not_sent_again_with_its_group(
    broker: PostgresBroker, db: Db
) -> None:
    task = await given_task(db, status=FAILED, task_name="pay", failed_at="now")
    for _ in range(2):
        (await rerun_task(broker, task)).unwrap()
    done = (await rerun_tasks(broker, task_names=["pay"], statuses=[FAILED])).unwrap()
    assert (done.changed, done.skipped, await count_tasks(db)) == (0, {"TASK_ALREADY_RERUN": 1}, 3)


async def test_m49a_people_who_send_a_group_again_at_the_same_time_send_it_once(broker: PostgresBroker, db: Db) -> None:
    ids = [await given_task(db, status=FAILED, task_name="pay", failed_at="now") for _ in range(60)]
    results = await asyncio.gather(*(rerun_tasks(broker, task_names=["pay"]) for _ in range(4)))
    done = [result.unwrap() for result in results]
    assert sum(one.changed for one in done) == len(ids) and await count_tasks(db) == 2 * len(ids)
    assert sum(one.skipped.get("TASK_ALREADY_RERUN", 0) for one in done) >= 2 * len(ids)


async def test_m49a_l21a_waiting_tasks_are_moved(broker: PostgresBroker, db: Db) -> None:
    ids = await one_of_each(db)
    named = [*ids.values(), await node(db), "nobody"]
    skipped = {"TASK_NOT_WAITING": 6, "TASK_IS_WORKFLOW_TASK": 1, "TASK_NOT_FOUND": 1}
    before = await task_row(db, ids[PENDING])
    would = (await move_tasks(broker, named, queue="slow", priority=7, dry_run=True)).unwrap()
    done = (await move_tasks(broker, named, queue="slow", priority=7)).unwrap()
    assert (would.changed, would.skipped) == (done.changed, done.skipped) == (1, skipped)
    after = await task_row(db, ids[PENDING])
    assert (after["queue_name"], after["priority"]) == ("slow", 7)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"queue_name", "priority", "updated_at"}
    there = (await move_tasks(broker, [ids[PENDING]], queue="slow")).unwrap()
    assert there.skipped == {"TASK_ALREADY_THERE": 1}
    assert (await move_tasks(broker, [ids[PENDING]], priority=9)).unwrap().changed == 1
    assert (await task_row(db, ids[PENDING]))["queue_name"] == "slow"


@pytest.mark.parametrize("priority", [1, 50, 100])
async def test_m49a_a_dry_run_tells_which_tasks_can_be_moved_wherever_that_is(
    broker: PostgresBroker, db: Db, priority: int
) -> None:
    waiting = await given_task(db, priority=priority)
    named = [waiting, await given_task(db, status=RUNNING), await node(db), "nobody"]
    would = (await move_tasks(broker, named, dry_run=True)).unwrap()
    assert (would.changed, [one.task_id for one in would.examples]) == (1, [waiting])
    assert would.skipped == {"TASK_NOT_WAITING": 1, "TASK_IS_WORKFLOW_TASK": 1, "TASK_NOT_FOUND": 1}
    assert (await move_tasks(broker, queues=["default"], dry_run=True)).unwrap().changed == 1
    assert (await move_tasks(broker, named)).unwrap_err().code is MonitoringErrorCode.INVALID_ARGUMENT


async def test_m49a_a_group_is_moved_also_into_a_queue_that_comes_later(broker: PostgresBroker, db: Db) -> None:
    """The walk along the queues meets them again there."""
    for queue in ("a", "b", "c"):
        for _ in range(4):
            await given_task(db, queue_name=queue, task_name="send")
    done = (await move_tasks(broker, task_names=["send"], queue="z", priority=3)).unwrap()
    assert (done.changed, done.is_complete, done.skipped) == (12, True, {})
    cursor = await db.execute("SELECT DISTINCT queue_name, priority FROM horsies_tasks")
    assert await cursor.fetchall() == [("z", 3)]


async def test_l21_l21a_workers_of_the_new_queue_are_told(broker: PostgresBroker, db: Db, database_url: str) -> None:
    due = sorted([await given_task(db) for _ in range(2)])
    later = await given_task(db, enqueued_at="2999-01-01")
    async with listening(database_url, "task_new", "task_queue_other", "task_queue_default") as heard:
        await move_tasks(broker, due, queue="other")
        told = await heard()
        assert {one for one in told if one[0] == "task_queue_other"} == {("task_queue_other", one) for one in due}
        assert not [one for one in told if one[0] == "task_queue_default"]
        await move_tasks(broker, [later], queue="other")
        assert ("task_queue_other", later) in await heard(), "so that a sleeping worker asks when to look"


async def test_m49a_a_call_changes_so_many_and_the_next_one_continues(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "BATCH", 3)
    for _ in range(10):
        await given_task(db, status=FAILED, task_name="pay", failed_at="now")
    changed = []
    for _ in range(4):
        done = (await rerun_tasks(broker, task_names=["pay"], statuses=[FAILED], most=4)).unwrap()
        changed.append((done.changed, done.is_complete))
    assert changed == [(4, False), (4, False), (2, True), (0, True)]


async def test_m49a_a_search_without_an_end_ends(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "BATCH", 2)
    monkeypatch.setattr(acting, "LOOKS", 3)
    for _ in range(20):
        await given_task(db, status=FAILED, task_name="pay", failed_at="now")
    assert (await rerun_tasks(broker, task_names=["pay"])).unwrap().changed == 20
    done = (await rerun_tasks(broker, task_names=["pay"])).unwrap()
    assert (done.changed, done.is_complete) == (0, False)


REFUSE = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN IF NEW.args = '"bad"' THEN RAISE EXCEPTION 'no' USING ERRCODE = '{}'; END IF; RETURN NEW; END$$;
    CREATE TRIGGER refuse BEFORE UPDATE OR INSERT ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION refuse();
"""


async def test_m49a_a_task_that_the_database_refuses_holds_up_no_other(broker: PostgresBroker, db: Db) -> None:
    ids = [await given_task(db, args='"bad"' if n == 4 else "[]") for n in range(9)]
    await db.execute(REFUSE.format("check_violation").encode())
    for done in (await move_tasks(broker, ids, queue="b"), await cancel_tasks(broker, ids)):
        assert (done.unwrap().changed, done.unwrap().skipped) == (8, {"TASK_REFUSED_BY_DATABASE": 1})
    assert (await task_row(db, ids[4]))["status"] == "PENDING"


async def test_m49a_a_failure_halfway_says_how_far_it_came(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "BATCH", 2)
    ids = [await given_task(db, args='"bad"' if n == 5 else "[]") for n in range(8)]
    await db.execute(REFUSE.format("admin_shutdown").encode())
    problem = (await cancel_tasks(broker, ids)).unwrap_err()
    assert problem.code is MonitoringErrorCode.DB_OPERATION_FAILED and problem.message.startswith(
        "after 4 tasks were changed"
    )
    assert (await statuses(db)) == {"CANCELLED": 4, "PENDING": 4}
    await db.execute("DROP TRIGGER refuse ON horsies_tasks")
    assert (await cancel_tasks(broker, ids)).unwrap().changed == 4, "it can be repeated"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"ids": ["a"], "queues": ["q"]},
        {"ids": "abc"},
        {"ids": ["a"] * 10_001},
        {"queues": ["q"], "statuses": ["FAILED"]},
        {"queues": ["q"], "statuses": ["RUNNING"]},
        {"queues": ["q"], "statuses": ["ODD"]},
        {"queues": "q"},
        {"queues": ["a\0"]},
        {"queues": ["q"], "most": 0},
        {"queues": ["q"], "most": 10_001},
    ],
)
async def test_m49a_an_unclear_choice_is_refused(broker: PostgresBroker, wrong: dict[str, Any]) -> None:
    for dry_run in (True, False):
        problem = (await cancel_tasks(broker, **wrong, dry_run=dry_run)).unwrap_err()
        assert problem.code is MonitoringErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"queue": ""},
        {"queue": "q" * 53},
        {"queue": "a\0"},
        {"queue": "a/b"},
        {"queue": "a b"},
        {"queue": "q\n"},
        {"queue": "left\u202e"},
        {"queue": "<b>"},
        {"queue": 7},
        {"priority": 0},
        {"priority": 101},
        {"priority": True},
    ],
)
async def test_m49a_a_place_that_cannot_be_is_refused(broker: PostgresBroker, db: Db, wrong: dict[str, Any]) -> None:
    """No worker could ever serve such a queue."""
    task_id = await given_task(db)
    for dry_run in (True, False) if wrong else (False,):
        problem = (await move_tasks(broker, [task_id], **wrong, dry_run=dry_run)).unwrap_err()
        assert problem.code is MonitoringErrorCode.INVALID_ARGUMENT
    assert (await task_row(db, task_id))["queue_name"] == "default"


async def test_m49a_l21a_tasks_that_workers_claim_at_the_same_moment_are_moved_or_claimed(
    broker: PostgresBroker, db: Db, database_url: str
) -> None:
    """Each is claimed once, from a queue that its worker serves."""
    ids = [await given_task(db, queue_name="left") for _ in range(200)]
    claimed: list[tuple[str, str]] = []
    is_over = asyncio.Event()

    async def worker(name: str, queue: str) -> None:
        who = tasks.Claimant(name, timedelta(minutes=1), False)
        order = tasks.ClaimOrder([queue], [7], [None], 7, 7, None, True, [])
        async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
            while rows := await tasks.claim(conn, who, order) or (not is_over.is_set() and [None]):
                claimed.extend((row.id, row.queue_name) for row in rows if row is not None)
                assert {row.queue_name for row in rows if row is not None} <= {queue}

    async def mover(start: int) -> int:
        moved = 0
        for place in range(start, len(ids), 40):
            moved += (await move_tasks(broker, ids[place : place + 20], queue="right", priority=3)).unwrap().changed
        return moved

    async def people() -> int:
        try:
            return sum(await asyncio.gather(mover(0), mover(20), mover(10)))
        finally:
            is_over.set()

    moved, *_ = await asyncio.gather(
        people(), *(worker(f"w{n}", queue) for n, queue in enumerate(["left", "right"] * 2))
    )
    assert Counter(dict(claimed).values()) == Counter(queue for _, queue in claimed)
    assert len(claimed) == len(ids) == len({task_id for task_id, _ in claimed})
    assert Counter(queue for _, queue in claimed)["right"] == moved


async def test_m49a_a_task_is_cancelled_or_finished_by_its_worker_never_both(
    broker: PostgresBroker, db: Db, database_url: str
) -> None:
    ids = [await given_task(db, status=RUNNING, started_at="now", claimed_at="now") for _ in range(100)]

    async def worker() -> set[str]:
        done: set[str] = set()
        async with await AsyncConnection.connect(database_url, autocommit=True, options=IN_BULK) as conn:
            for start in range(0, len(ids), 5):
                part = [Complete(Claim(task_id, 1), '{"ok":1}') for task_id in reversed(ids[start : start + 5])]
                done |= await tasks.apply(conn, "w1", part)
        return done

    finished, stopped = await asyncio.gather(worker(), cancel_tasks(broker, list(reversed(ids)), include_running=True))
    assert len(finished) + stopped.unwrap().changed == len(ids)
    assert finished.isdisjoint(stopped.unwrap().changed_ids)
    assert (
        await statuses(db) == Counter({"COMPLETED": len(finished), "CANCELLED": stopped.unwrap().changed}) - Counter()
    )


async def test_m49a_the_answer_names_the_first_of_many(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "MOST_IDS", 2)
    ids = [await given_task(db) for _ in range(5)]
    done = (await cancel_tasks(broker, ids)).unwrap()
    assert (done.changed, len(done.changed_ids)) == (5, 2)


async def test_m49_a_rerun_of_one_is_the_same_statement(db: Db) -> None:
    task_id = await given_task(db, status=FAILED)
    assert await many.rerun(db, [task_id], ["new"]) == {task_id: "new"}
    assert await many.rerun(db, [task_id], ["new"]) == {}
