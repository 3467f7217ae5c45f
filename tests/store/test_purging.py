"""What is counted for a purge, and who waits: each statement with rows on both sides of every condition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from horsies.core.store import many, retention
from horsies.core.store.retention import FIRST, START, Choice, EndedCount, Rank, RetentionPosition
from horsies.core.types.status import TASK_TERMINAL_STATES, TaskStatus
from tests.factories import given_task, given_workflow, task_row

Db = AsyncConnection[Any]

HOUR = timedelta(hours=1)
OLD = "2020-01-01 00:00:00.123456+00"
ALONE = Choice(with_workflows=False)


async def looked(db: Db, choice: Choice, most: int = 500) -> tuple[list[EndedCount], int]:
    """All that is counted, and in how many steps."""
    counts: list[EndedCount] = []
    place: RetentionPosition | None = START
    steps = 0
    while place is not None:
        found, place = await retention.count_ended(db, HOUR, choice, place, most)
        counts += found
        steps += 1
    return counts, steps - 1


async def test_only_what_has_ended_before_and_is_chosen_is_counted(db: Db) -> None:
    for status in TaskStatus:
        await given_task(db, status=status, completed_at=OLD, failed_at=OLD, updated_at=OLD)
        await given_task(db, status=status)  # just now
    await given_task(db, status=TaskStatus.FAILED, failed_at=OLD, queue_name="mail", task_name="send")
    counts, _ = await looked(db, ALONE)
    assert sorted(count.status for count in counts) == sorted([*TASK_TERMINAL_STATES, "FAILED"])
    assert (await looked(db, Choice(statuses=("FAILED",), queues=("mail", "none"))))[0] == [
        EndedCount("FAILED", "mail", "send", 1)
    ]
    assert (await looked(db, Choice(task_names=("nobody",))))[0] == []


async def test_a_look_is_bounded_and_goes_on_where_it_stopped(db: Db) -> None:
    """Also over rows that are not chosen, and rows that ended at the same time."""
    for n in range(5):
        await given_task(
            db, status=TaskStatus.COMPLETED, completed_at=OLD, id=str(n), task_name="odd" if n % 2 else "even"
        )
    counts, steps = await looked(db, Choice(task_names=("odd",)), most=2)
    assert (sum(count.count for count in counts), steps) == (2, 3)


async def test_tasks_of_workflows_are_chosen_only_if_asked_for(db: Db) -> None:
    workflow_id = await given_workflow(db, status="COMPLETED", completed_at=OLD)
    await given_task(db, status=TaskStatus.COMPLETED, completed_at=OLD, workflow_id=workflow_id)
    assert (await looked(db, ALONE))[0] == []
    assert len((await looked(db, Choice()))[0]) == 1
    assert (await retention.prune_tasks(db, HOUR, choice=ALONE)).rows == 0
    assert (await retention.prune_tasks(db, HOUR)).rows == 1


async def test_r84_a_choice_deletes_what_it_counts_and_steps_over_the_rest(db: Db) -> None:
    for n in range(6):
        await given_task(
            db, status=TaskStatus.COMPLETED, completed_at=OLD, id=str(n), queue_name="odd" if n % 2 else "even"
        )
    choice, place, steps = Choice(queues=("odd",)), START, []
    while True:
        pruned = await retention.prune_tasks(db, HOUR, place, retention.Portion(2), choice=choice)
        if pruned.next is None:
            break
        steps.append(pruned.rows)
        place = pruned.next
    assert steps == [1, 1, 1]
    assert {row[0] for row in await (await db.execute("SELECT queue_name FROM horsies_tasks")).fetchall()} == {"even"}


async def test_those_that_wait_come_in_the_order_of_claims(db: Db) -> None:
    await given_task(db, id="c", priority=2, enqueued_at=OLD)
    await given_task(db, id="a", priority=2, enqueued_at=OLD)
    await given_task(db, id="b", priority=1, enqueued_at="9999-01-01")
    await given_task(db, id="other", queue_name="mail")
    await given_task(db, status=TaskStatus.CLAIMED)
    workflow_id = await given_workflow(db)
    await given_task(db, id="node", priority=3, workflow_id=workflow_id)
    found, after = [], FIRST
    while batch := await retention.waiting(db, "default", timedelta(0), after=after, most=2):
        found += batch
        after = batch[-1].rank
    assert [(task.rank.task_id, task.is_chosen) for task in found] == [
        ("b", True), ("a", True), ("c", True), ("node", False)
    ]  # fmt: skip
    assert found[1].rank == Rank(2, found[2].rank.enqueued_at, "a")


async def test_those_that_wait_are_chosen_by_name_and_age(db: Db) -> None:
    await given_task(db, id="old", task_name="send", created_at=OLD)
    await given_task(db, id="new", task_name="send")
    await given_task(db, id="another", created_at=OLD)
    chosen = {task.rank.task_id for task in await retention.waiting(db, "default", HOUR, ("send",)) if task.is_chosen}
    assert chosen == {"old"}


async def test_l17_only_what_has_not_started_is_cancelled(db: Db) -> None:
    ids = {status: await given_task(db, status=status) for status in TaskStatus}
    node = await given_task(db, workflow_id=await given_workflow(db))
    assert {task.id for task in await many.cancel(db, [*ids.values(), node, "nobody"], "r")} == {
        ids[TaskStatus.PENDING],
        ids[TaskStatus.CLAIMED],
    }
    assert (await task_row(db, node))["status"] == "PENDING"
    assert (await task_row(db, ids[TaskStatus.RUNNING]))["status"] == "RUNNING"
