"""What retention deletes, and what it must leave alone (R-80 to R-85): each statement with rows on both sides of every
condition. Ages are exact to the microsecond, as the clock of the transaction stands still.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.store import retention
from horsies.core.store.retention import START, Pruned, RetentionPosition
from horsies.core.types.status import TASK_TERMINAL_STATES, TaskStatus, WorkflowStatus
from tests.factories import (
    given_attempt,
    given_heartbeat,
    given_node,
    given_task,
    given_worker,
    given_worker_state,
    given_workflow,
)

AGE = timedelta(hours=720)
OLDER = AGE + timedelta(microseconds=1)
NONE = timedelta(0)

Db = AsyncConnection[Any]


async def ago(db: Db, age: timedelta) -> datetime:
    row = await (await db.execute("SELECT now() - %s", [age])).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


async def left(db: Db, table: str, column: str = "id") -> set[Any]:
    return {row[0] for row in await (await db.execute(f"SELECT {column} FROM {table}".encode())).fetchall()}  # noqa: S608


async def ended(db: Db, age: timedelta = OLDER, **columns: Any) -> str:
    """A task that completed so long ago."""
    return await given_task(db, status=TaskStatus.COMPLETED, completed_at=await ago(db, age), **columns)


async def pass_over_tasks(db: Db, most: int = 500) -> list[int]:
    """One pass from the beginning to the end: how many rows each step deleted."""
    steps, place = [], START
    while place is not None:
        pruned = await retention.prune_tasks(db, AGE, place, retention.Portion(most))
        steps.append(pruned.rows)
        place = pruned.next
    return steps[:-1]


async def pass_over_workflows(db: Db, most: int = 500) -> list[tuple[int, int]]:
    """One pass: how many workflows and nodes each step deleted."""
    steps, place = [], START
    while place is not None:
        pruned = await retention.prune_workflows(db, AGE, place, retention.Portion(most))
        steps.append((pruned.rows, pruned.nodes))
        place = pruned.next
    return steps[:-1]


# Tasks


async def test_r80_ended_tasks_go_when_they_are_older_whatever_their_end(frozen: Db) -> None:
    old, young = await ago(frozen, OLDER), await ago(frozen, AGE)
    kept = set()
    for status in TaskStatus:
        times = {"completed_at": old, "failed_at": old, "updated_at": old, "claimed_at": old, "started_at": old}
        task_id = await given_task(frozen, status=status, **times)
        kept.add(await given_task(frozen, status=status, completed_at=young, failed_at=old, updated_at=old))
        if status not in TASK_TERMINAL_STATES:
            kept.add(task_id)
    assert await pass_over_tasks(frozen) == [len(TASK_TERMINAL_STATES)]
    assert await left(frozen, "horsies_tasks") == kept


@pytest.mark.parametrize("given", ["completed_at", "failed_at", "updated_at"])
async def test_r82_the_first_time_that_is_there_counts(frozen: Db, given: str) -> None:
    places = ["completed_at", "failed_at", "updated_at"]
    later = {name: await ago(frozen, NONE) for name in places[places.index(given) + 1 :]}
    for age in (OLDER, AGE):
        await given_task(frozen, status=TaskStatus.FAILED, id=str(age), **{given: await ago(frozen, age), **later})
    assert await pass_over_tasks(frozen) == [1]
    assert await left(frozen, "horsies_tasks") == {str(AGE)}


async def test_r80_attempts_go_with_their_task_and_heartbeats_do_not(frozen: Db) -> None:
    gone, kept = await ended(frozen), await ended(frozen, AGE)
    for task_id in (gone, kept):
        await given_attempt(frozen, task_id)
        await given_heartbeat(frozen, task_id, "runner")
    await pass_over_tasks(frozen)
    assert await left(frozen, "horsies_task_attempts", "task_id") == {kept}
    assert await left(frozen, "horsies_heartbeats", "task_id") == {gone, kept}


async def test_r84_a_batch_is_bounded_and_the_oldest_go_first(frozen: Db) -> None:
    ids = [await ended(frozen, OLDER + timedelta(hours=n)) for n in range(5)]
    place: RetentionPosition | None = START
    for still in (set(ids[:3]), set(ids[:1]), set()):
        assert place is not None
        pruned = await retention.prune_tasks(frozen, AGE, place, retention.Portion(2))
        assert await left(frozen, "horsies_tasks") == still
        place = pruned.next
    assert place is not None
    assert await retention.prune_tasks(frozen, AGE, place, retention.Portion(2)) == Pruned(0, 0, None)


async def test_r84_tasks_that_ended_together_may_be_more_than_a_batch(frozen: Db) -> None:
    for _ in range(5):
        await ended(frozen)
    assert await pass_over_tasks(frozen, most=2) == [2, 2, 1]


async def test_r84_cascades_count(frozen: Db) -> None:
    for n in range(3):
        task_id = await ended(frozen, OLDER + timedelta(hours=n))
        for attempt in range(1, 4):
            await given_attempt(frozen, task_id, attempt=attempt)
    assert await pass_over_tasks(frozen, most=8) == [2, 1]  # four rows each


async def test_r84_a_task_with_more_attempts_than_a_batch_goes_alone(frozen: Db) -> None:
    task_id = await ended(frozen, OLDER + timedelta(hours=1))
    for attempt in range(1, 6):
        await given_attempt(frozen, task_id, attempt=attempt)
    await ended(frozen)
    assert await pass_over_tasks(frozen, most=3) == [1, 1]
    assert await left(frozen, "horsies_tasks") == set()


async def test_r83_a_task_of_an_unfinished_workflow_stays(frozen: Db) -> None:
    kept = set()
    for status in WorkflowStatus:
        workflow_id = await given_workflow(frozen, status=status.value)
        task_id = await ended(frozen, workflow_id=workflow_id)
        await given_node(frozen, workflow_id, task_id=task_id)
        if not status.is_terminal:
            kept.add(task_id)
    await ended(frozen, workflow_id="deleted meanwhile")
    await pass_over_tasks(frozen)
    assert await left(frozen, "horsies_tasks") == kept
    assert await left(frozen, "horsies_workflow_tasks", "task_id") == kept | {None}


async def test_r83_tasks_that_must_stay_do_not_stop_those_behind(frozen: Db) -> None:
    """More than a batch, all with the same time: a pass still gets over them, and to its end."""
    workflow_id = await given_workflow(frozen, status="RUNNING")
    kept = {await ended(frozen, OLDER + timedelta(hours=1), workflow_id=workflow_id) for _ in range(5)}
    behind = {await ended(frozen) for _ in range(2)}
    assert sum(await pass_over_tasks(frozen, most=2)) == len(behind)
    assert await left(frozen, "horsies_tasks") == kept


# Heartbeats, snapshots, workers


async def test_r80_heartbeats_go_by_their_age(frozen: Db) -> None:
    for age in (AGE, OLDER, OLDER + timedelta(hours=1), OLDER + timedelta(hours=2)):
        await given_heartbeat(frozen, str(age), "runner", sent_at=await ago(frozen, age))
    assert await retention.prune_heartbeats(frozen, AGE, NONE, most=2) == 2
    assert await left(frozen, "horsies_heartbeats", "task_id") == {str(AGE), str(OLDER)}
    assert await retention.prune_heartbeats(frozen, AGE, NONE) == 1
    assert await retention.prune_heartbeats(frozen, AGE, NONE) == 0


async def test_r82_a_heartbeat_younger_than_the_longest_threshold_stays(frozen: Db) -> None:
    longest = timedelta(hours=2)
    for age in (longest, longest + timedelta(microseconds=1)):
        await given_heartbeat(frozen, str(age), "runner", sent_at=await ago(frozen, age))
    assert await retention.prune_heartbeats(frozen, timedelta(hours=1), longest) == 1
    assert await left(frozen, "horsies_heartbeats", "task_id") == {str(longest)}


@pytest.mark.parametrize(
    "settings",
    [
        {"claimed_stale_threshold_ms": 7_200_000},
        {"running_stale_threshold_ms": 7_200_000, "claimed_stale_threshold_ms": 1000},
        {"finalizing_stale_threshold_ms": 7_200_000},
        {"worker_recovery": {"sweep_threshold": 1_800_000, "resilient_sweep_threshold_multiplier": 4}},
    ],
)
async def test_r82_the_thresholds_of_the_registered_workers_count_too(frozen: Db, settings: dict[str, Any]) -> None:
    await given_worker(frozen, "patient", recovery=Jsonb(settings))
    await given_worker(frozen, "hasty", recovery=Jsonb({"running_stale_threshold_ms": 1000}))
    await given_worker(frozen, "without settings")
    longest = timedelta(hours=2)
    for age in (longest, longest + timedelta(microseconds=1)):
        await given_heartbeat(frozen, str(age), "runner", sent_at=await ago(frozen, age))
    assert await retention.prune_heartbeats(frozen, timedelta(hours=1), NONE) == 1
    assert await left(frozen, "horsies_heartbeats", "task_id") == {str(longest)}


async def test_r80_snapshots_go_by_their_age(frozen: Db) -> None:
    for age in (AGE, OLDER, OLDER + timedelta(hours=1), OLDER + timedelta(hours=2)):
        await given_worker_state(frozen, str(age), snapshot_at=await ago(frozen, age))
    assert await retention.prune_worker_states(frozen, AGE, most=2) == 2
    assert await left(frozen, "horsies_worker_states", "worker_id") == {str(AGE), str(OLDER)}
    assert await retention.prune_worker_states(frozen, AGE) == 1


async def test_r85_workers_silent_for_a_day_go_unless_they_hold_a_task(frozen: Db) -> None:
    day = timedelta(hours=24)
    for name, age in (("idle", OLDER), ("claims", OLDER), ("runs", OLDER), ("ran", OLDER), ("heard of", day)):
        await given_worker(frozen, name, last_heartbeat_at=await ago(frozen, age))
    await given_task(frozen, status=TaskStatus.CLAIMED, claimed_by_worker_id="claims")
    await given_task(frozen, status=TaskStatus.RUNNING, claimed_by_worker_id="runs")
    await given_task(frozen, status=TaskStatus.FAILED, claimed_by_worker_id="ran")
    assert await retention.prune_workers(frozen, most=1) == 1
    assert await retention.prune_workers(frozen) == 1
    assert await left(frozen, "horsies_workers", "worker_id") == {"claims", "runs", "heard of"}


# Workflows


async def test_r80_ended_workflows_go_with_their_nodes_first(frozen: Db) -> None:
    kept = set()
    for status in WorkflowStatus:
        for age in (AGE, OLDER):
            workflow_id = await given_workflow(frozen, status=status.value, completed_at=await ago(frozen, age))
            await given_node(frozen, workflow_id)
            if not status.is_terminal or age == AGE:
                kept.add(workflow_id)
    assert await pass_over_workflows(frozen) == [(0, 3), (3, 0)]
    assert await left(frozen, "horsies_workflows") == kept
    assert await left(frozen, "horsies_workflow_tasks", "workflow_id") == kept


async def test_r82_a_workflow_without_the_time_of_its_end_ages_from_its_last_change(frozen: Db) -> None:
    kept = {
        await given_workflow(frozen, status=status, updated_at=await ago(frozen, age))
        for status, age in (("FAILED", AGE), ("RUNNING", OLDER))
    }
    await given_workflow(frozen, status="FAILED", updated_at=await ago(frozen, OLDER))
    await given_workflow(frozen, status="FAILED", completed_at=await ago(frozen, OLDER))
    assert await pass_over_workflows(frozen) == [(2, 0)]
    assert await left(frozen, "horsies_workflows") == kept


async def test_r84_nodes_go_in_batches_of_their_own(frozen: Db) -> None:
    for nodes, age in ((5, OLDER + timedelta(hours=1)), (2, OLDER)):
        workflow_id = await given_workflow(frozen, status="COMPLETED", completed_at=await ago(frozen, age))
        for index in range(nodes):
            await given_node(frozen, workflow_id, task_index=index)
    assert await pass_over_workflows(frozen, most=3) == [(0, 3), (0, 3), (1, 1), (1, 0)]
    assert await left(frozen, "horsies_workflow_tasks") == set()


async def test_r84_workflows_that_ended_together_may_be_more_than_a_batch(frozen: Db) -> None:
    for _ in range(5):
        await given_workflow(frozen, status="FAILED", completed_at=await ago(frozen, OLDER))
    assert await pass_over_workflows(frozen, most=2) == [(2, 0), (2, 0), (1, 0)]


async def test_r83_a_child_goes_only_when_its_root_may_go(frozen: Db) -> None:
    old, kept = {"completed_at": await ago(frozen, OLDER)}, set()
    for name, root in (
        ("running", {"status": "RUNNING", "updated_at": await ago(frozen, OLDER)}),
        ("young", {"status": "COMPLETED", "completed_at": await ago(frozen, AGE)}),
        ("young without a time", {"status": "COMPLETED", "updated_at": await ago(frozen, AGE)}),
        ("old", {"status": "COMPLETED", **old}),
    ):
        root_id = await given_workflow(frozen, **root)
        child = {"parent_workflow_id": root_id, "root_workflow_id": root_id, "status": "COMPLETED", **old}
        child_id = await given_workflow(frozen, **child)
        grandchild = {**child, "parent_workflow_id": child_id}
        family = {root_id, child_id, await given_workflow(frozen, **grandchild)}
        if name != "old":
            kept |= family
    assert [await pass_over_workflows(frozen) for _ in range(4)] == [[(1, 0)], [(1, 0)], [(1, 0)], [(0, 0)]]
    assert await left(frozen, "horsies_workflows") == kept


async def test_r84_no_cascade_takes_an_unfinished_child(frozen: Db) -> None:
    """It should not be there under a root that ended; but deleting the root would delete it."""
    root_id = await given_workflow(frozen, status="CANCELLED", completed_at=await ago(frozen, OLDER))
    child = {"parent_workflow_id": root_id, "root_workflow_id": root_id, "status": "RUNNING"}
    child_id = await given_workflow(frozen, **child)
    assert await pass_over_workflows(frozen) == [(0, 0)]
    assert await left(frozen, "horsies_workflows") == {root_id, child_id}
