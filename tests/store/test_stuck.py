"""What reconciliation looks for (R-30 to R-38): each look with rows on both sides of every condition. Ages are exact to
the microsecond, as the clock of the transaction stands still.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.store import recovery
from horsies.core.store.recovery import NODES, Due, NodePosition, Stuck, What
from horsies.core.types.status import TASK_TERMINAL_STATES, TaskStatus, WorkflowStatus, WorkflowTaskStatus
from tests.factories import given_node, given_task, given_worker, given_workflow

GRACE = timedelta(seconds=10)
YOUNGER = GRACE - timedelta(microseconds=1)
IN_FLIGHT = ("READY", "ENQUEUED", "RUNNING")

Db = AsyncConnection[Any]


async def ago(db: Db, age: timedelta) -> datetime:
    row = await (await db.execute("SELECT now() - %s", [age])).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


async def ended_task(db: Db, status: TaskStatus, age: timedelta = GRACE) -> str:
    times = {TaskStatus.COMPLETED: "completed_at", TaskStatus.FAILED: "failed_at"}
    return await given_task(db, status=status, **{times.get(status, "updated_at"): await ago(db, age)})


async def a_node(db: Db, status: str, task_id: str | None, **columns: Any) -> str:
    """A node of its own workflow, which runs unless told otherwise; the id of the workflow."""
    workflow = {"status": "RUNNING", "open_nodes": 1} | columns.pop("workflow", {})
    workflow_id = await given_workflow(db, **workflow)
    await given_node(db, workflow_id, status=status, task_id=task_id, **columns)
    return workflow_id


async def look(db: Db, grace: timedelta = GRACE) -> dict[str, What]:
    """What is found, by workflow."""
    found, _ = await recovery.nodes(db, grace)
    return {node.workflow_id: node.what for node in found}


# Tasks that have ended


@pytest.mark.parametrize("status", sorted(TASK_TERMINAL_STATES))
async def test_r30_r31_a_node_is_found_when_its_task_has_ended_for_the_grace(frozen: Db, status: TaskStatus) -> None:
    found = {}
    for node in ("ENQUEUED", "RUNNING"):
        found[await a_node(frozen, node, await ended_task(frozen, status))] = What.ENDED
        await a_node(frozen, node, await ended_task(frozen, status, YOUNGER))
    assert await look(frozen) == found


async def test_r30_a_node_that_has_ended_itself_needs_nothing(frozen: Db) -> None:
    for status in set(WorkflowTaskStatus) - {WorkflowTaskStatus[name] for name in IN_FLIGHT}:
        await a_node(frozen, status.value, await ended_task(frozen, TaskStatus.COMPLETED))
    assert await recovery.nodes(frozen, GRACE) == ([], None)


async def test_r30_a_node_whose_task_is_on_its_way_needs_nothing(frozen: Db) -> None:
    for status in (TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING):
        for node in ("ENQUEUED", "RUNNING"):
            await a_node(frozen, node, await given_task(frozen, status=status, updated_at="2020-01-01"))
    assert await look(frozen) == {}


@pytest.mark.parametrize("workflow", list(WorkflowStatus))
async def test_r30_in_whatever_state_the_workflow_is(frozen: Db, workflow: WorkflowStatus) -> None:
    task_id = await ended_task(frozen, TaskStatus.COMPLETED)
    found = await a_node(frozen, "RUNNING", task_id, workflow={"status": workflow.value})
    assert await recovery.nodes(frozen, GRACE) == ([Stuck(What.ENDED, found, 0, task_id)], NodePosition(found, 0))


async def test_r04_r31_without_grace_it_is_found_at_once(frozen: Db) -> None:
    task_id = await given_task(frozen, status=TaskStatus.FAILED, failed_at=await ago(frozen, timedelta(0)))
    node = await a_node(frozen, "RUNNING", task_id)
    assert await look(frozen, timedelta(0)) == {node: What.ENDED}


async def given_mark(db: Db, worker_id: str, *, age: timedelta, since: timedelta, flows: tuple[str, ...] = ()) -> None:
    """A worker that has said, so long ago, that it has advanced everything that ended before `since`."""
    at, then = [(await ago(db, length)).timestamp() for length in (age, since)]
    await given_worker(db, worker_id, metadata=Jsonb({"advancing": {"at": at, "since": then, "flows": list(flows)}}))


async def test_r31_what_a_worker_that_makes_progress_has_in_its_line_is_left_to_it(frozen: Db) -> None:
    minute, past = timedelta(minutes=1), timedelta(minutes=1, seconds=1)
    await given_mark(frozen, "busy", age=2 * GRACE - timedelta(seconds=1), since=minute)
    await given_mark(frozen, "stuck", age=2 * GRACE + timedelta(seconds=1), since=minute)
    await given_worker(frozen, "odd", metadata=Jsonb({"advancing": {"at": "soon", "since": -1, "flows": 7}}))
    found = {}
    for owner, age, is_left in (
        ("busy", GRACE, True),
        ("busy", minute, True),
        ("busy", past, False),  # it is through with that, and does not know it any more
        ("stuck", GRACE, False),
        ("odd", GRACE, False),
        ("gone", GRACE, False),
        (None, GRACE, True),  # it ended without a claim, and somebody who ended it may have it
        (None, past, False),
    ):
        task = await given_task(
            frozen, status=TaskStatus.COMPLETED, completed_at=await ago(frozen, age), claimed_by_worker_id=owner
        )
        node = await a_node(frozen, "RUNNING", task)
        if not is_left:
            found[node] = What.ENDED
    assert await look(frozen) == found


async def test_r34_r35_workflows_that_a_worker_has_more_to_do_for_are_left_to_it(frozen: Db) -> None:
    old = {"ready_at": await ago(frozen, GRACE)}
    named, other = [await a_node(frozen, "READY", None, **old) for _ in range(2)]
    children = [
        await given_workflow(frozen, status="COMPLETED", completed_at=await ago(frozen, GRACE)) for _ in range(2)
    ]
    parents = [
        await a_node(frozen, "RUNNING", None, node_type="SUBWORKFLOW", sub_workflow_id=child) for child in children
    ]
    await given_mark(frozen, "busy", age=GRACE, since=GRACE, flows=(named, children[0]))
    assert await look(frozen) == {other: What.READY, parents[1]: What.CHILD}


# Child workflows, missing rows, stranded tasks


@pytest.mark.parametrize("status", list(WorkflowStatus))
async def test_r34_a_node_is_found_when_its_child_workflow_has_ended_for_the_grace(
    frozen: Db, status: WorkflowStatus
) -> None:
    found = {}
    for age in (GRACE, YOUNGER):
        child = await given_workflow(frozen, status=status.value, completed_at=await ago(frozen, age))
        parent = await a_node(frozen, "RUNNING", None, node_type="SUBWORKFLOW", sub_workflow_id=child)
        if status.is_terminal and age == GRACE:
            found[parent] = What.CHILD
    assert await look(frozen) == found


async def test_r34_a_child_without_the_time_of_its_end_ages_from_its_last_change(frozen: Db) -> None:
    child = await given_workflow(frozen, status="CANCELLED", updated_at=await ago(frozen, GRACE))
    parent = await a_node(frozen, "RUNNING", None, node_type="SUBWORKFLOW", sub_workflow_id=child)
    assert await recovery.nodes(frozen, GRACE) == ([Stuck(What.CHILD, parent, 0, child)], NodePosition(parent, 0))


async def test_r34_a_node_is_found_when_the_row_it_is_linked_with_is_gone(frozen: Db) -> None:
    found = {}
    for kind in ("TASK", "ELEMENT"):
        for status in ("ENQUEUED", "RUNNING"):
            task_id = await given_task(frozen)
            found[await a_node(frozen, status, task_id, node_type=kind, map_index=7)] = What.LOST
            await frozen.execute("DELETE FROM horsies_tasks WHERE id = %s", [task_id])
    child = await given_workflow(frozen, status="RUNNING")
    found[await a_node(frozen, "RUNNING", None, node_type="SUBWORKFLOW", sub_workflow_id=child)] = What.LOST
    await frozen.execute("DELETE FROM horsies_workflows WHERE id = %s", [child])
    await a_node(frozen, "RUNNING", None, node_type="MAP")  # it has elements instead
    assert await look(frozen) == found


@pytest.mark.parametrize("workflow", list(WorkflowStatus))
async def test_r34_a_task_that_waits_is_stranded_when_its_workflow_has_ended(
    frozen: Db, workflow: WorkflowStatus
) -> None:
    found = {}
    for status in (TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING):
        node = await a_node(frozen, "RUNNING", await given_task(frozen, status=status), workflow={"status": workflow})
        if workflow.is_terminal and status is TaskStatus.PENDING:
            found[node] = What.STRANDED
    assert await look(frozen) == found


# Nodes that are ready


@pytest.mark.parametrize("workflow", list(WorkflowStatus))
async def test_r35_a_ready_node_of_a_running_workflow_is_found_after_the_grace(
    frozen: Db, workflow: WorkflowStatus
) -> None:
    found = {}
    for kind in ("TASK", "SUBWORKFLOW", "MAP"):
        for age in (GRACE, YOUNGER):
            columns = {"node_type": kind, "ready_at": await ago(frozen, age), "updated_at": "2020-01-01"}
            node = await a_node(frozen, "READY", None, workflow={"status": workflow}, **columns)
            if workflow is WorkflowStatus.RUNNING and age == GRACE:
                found[node] = What.READY
    assert await look(frozen) == found


@pytest.mark.parametrize(
    ("places", "on_its_way_in", "is_stuck"),
    [
        (1, 1, False),  # the only place is taken
        (2, 1, True),
        (None, 1, True),  # there is always a place
        (1, 2, True),  # by one of another map
    ],
)
async def test_f95_r35_an_element_waits_for_a_place_in_its_own_map_only(
    frozen: Db, places: int | None, on_its_way_in: int, is_stuck: bool
) -> None:
    flow = await given_workflow(frozen, status="RUNNING")
    options = json.dumps({"first": 5, "max_parallel": places})
    await given_node(frozen, flow, task_index=1, node_type="MAP", status="RUNNING", map_options=options)
    old = {"node_type": "ELEMENT", "status": "READY", "ready_at": "2020-01-01"}
    await given_node(frozen, flow, task_index=5, map_index=1, **old)
    task_id = await given_task(frozen)
    await given_node(
        frozen, flow, task_index=6, node_type="ELEMENT", status="ENQUEUED", map_index=on_its_way_in, task_id=task_id
    )
    assert await look(frozen) == {}, "one of it has just ended: somebody is about to enqueue this one"
    await frozen.execute("UPDATE horsies_workflow_tasks SET updated_at = '2020-01-01' WHERE task_index = 1")
    assert await look(frozen) == ({flow: What.READY} if is_stuck else {})


async def test_r35_of_many_nodes_of_a_workflow_that_are_ready_the_oldest_is_enough(frozen: Db) -> None:
    """A step takes all of them; and one that has just become READY does not hide one that nobody has enqueued."""
    flow = await given_workflow(frozen, status="RUNNING")
    for index, age in enumerate((YOUNGER, GRACE, 2 * GRACE, GRACE, YOUNGER)):
        await given_node(frozen, flow, task_index=index, status="READY", ready_at=await ago(frozen, age))
    found, _ = await recovery.nodes(frozen, GRACE)
    assert found == [Stuck(What.READY, flow, 2, None)]


# The walk


async def test_r17_a_look_is_bounded_and_the_next_goes_on_behind_it(frozen: Db) -> None:
    """Also when it has found nothing: then the last node it looked at says where it was."""
    expected = []
    for name in ("a", "b", "c"):
        await given_workflow(frozen, id=name, status="RUNNING")
        for index in range(3):
            is_stuck = name == "c" or index == 0
            task_id = await ended_task(frozen, TaskStatus.FAILED) if is_stuck else await given_task(frozen)
            await given_node(frozen, name, task_index=index, status="RUNNING", task_id=task_id)
            expected += [(name, index)] if is_stuck else []
        await given_node(frozen, name, task_index=3, status="COMPLETED")
    found, places, place = [], [], NODES
    while True:
        nodes, after = await recovery.nodes(frozen, GRACE, place, most=2)
        found += [(node.workflow_id, node.task_index) for node in nodes]
        if after is None:
            break
        places.append(after)
        place = after
    assert found == expected
    assert places == [("a", 1), ("b", 0), ("b", 2), ("c", 1), ("c", 2)]


# Ends of workflows


async def test_r36_running_workflows_without_an_open_node_are_found(frozen: Db) -> None:
    over = []
    for status in WorkflowStatus:
        for left in (0, 1):
            workflow_id = await given_workflow(frozen, status=status.value, open_nodes=left)
            over += [workflow_id] if status is WorkflowStatus.RUNNING and not left else []
    over += [await given_workflow(frozen, status="RUNNING", open_nodes=0) for _ in range(2)]
    found, after = await recovery.over(frozen, most=2)
    rest, end = await recovery.over(frozen, after or "", most=2)
    assert (found + rest, end) == (sorted(over), sorted(over)[-1])
    assert await recovery.over(frozen, end or "") == ([], None)


@pytest.mark.parametrize("status", list(WorkflowStatus))
async def test_r38_workflows_past_their_deadline_are_found(frozen: Db, status: WorkflowStatus) -> None:
    found = []
    for age in (timedelta(0), timedelta(microseconds=-1)):
        workflow = {"status": status, "good_until": await ago(frozen, age)}
        workflow_id = await a_node(frozen, "PENDING", None, workflow=workflow)
        found += [workflow_id] if not status.is_terminal and not age else []
    await a_node(frozen, "PENDING", None, workflow={"status": status})
    assert (await recovery.overdue_nodes(frozen))[0] == found


@pytest.mark.parametrize("node", list(WorkflowTaskStatus))
async def test_r38_one_whose_last_nodes_still_run_is_only_waited_for(frozen: Db, node: WorkflowTaskStatus) -> None:
    deadline = await ago(frozen, timedelta(hours=1))
    workflow = {"good_until": deadline, "open_nodes": int(not node.is_terminal)}
    workflow_id = await a_node(frozen, node.value, None, workflow=workflow)
    found, place = await recovery.overdue_nodes(frozen)
    assert found == ([] if node is WorkflowTaskStatus.RUNNING else [workflow_id])
    assert place is not None and place.workflow_id == workflow_id
    assert await recovery.overdue_nodes(frozen, place) == ([], None)


async def test_r38_the_walk_over_the_deadlines_is_bounded(frozen: Db) -> None:
    deadline = await ago(frozen, timedelta(hours=1))
    ids = [await a_node(frozen, "RUNNING", None, workflow={"good_until": deadline}) for _ in range(3)]
    waiting = await a_node(frozen, "READY", None, workflow={"good_until": await ago(frozen, timedelta(minutes=1))})
    place: Due | None = Due("-infinity", "")
    looks = []
    while place is not None:
        found, place = await recovery.overdue_nodes(frozen, place, most=2)
        looks.append(found)
    assert len(ids) == 3 and looks == [[], [waiting], []]


# Whether there is anything to look for


async def test_r16_where_every_workflow_is_well_or_has_ended_nothing_is_looked_for(frozen: Db) -> None:
    for status, open_nodes in (("COMPLETED", 0), ("FAILED", 0), ("CANCELLED", 0), ("RUNNING", 1), ("PENDING", 1)):
        past = {"good_until": await ago(frozen, GRACE)} if open_nodes == 0 else {}
        workflow_id = await given_workflow(frozen, status=status, open_nodes=open_nodes, **past)
        await given_node(frozen, workflow_id, status="PENDING" if open_nodes else "COMPLETED")
    await given_task(frozen)
    assert await recovery.is_any_workflow_open(frozen) is False


@pytest.mark.parametrize("what", ["READY", "ENQUEUED", "RUNNING", "over", "overdue", "held"])
async def test_r16_each_that_a_look_could_find_is_enough(frozen: Db, what: str) -> None:
    running = {"status": "RUNNING", "open_nodes": 1}
    if what == "over":
        await given_workflow(frozen, status="RUNNING", open_nodes=0)
    elif what == "overdue":
        await given_workflow(frozen, **running, good_until=await ago(frozen, timedelta()))
    elif what == "held":
        await given_task(frozen, workflow_id=await given_workflow(frozen, **running), is_held=True)
    else:
        await a_node(frozen, what, None, workflow={"status": "COMPLETED", "open_nodes": 0})
    assert await recovery.is_any_workflow_open(frozen) is True
