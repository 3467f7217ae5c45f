"""What is stored, and where it differs from what the model says. Rows find their nodes here: a task or child workflow
that the model has and nobody has seen yet takes the id that its node's row gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from tests.proof_workflows.model import World
from tests.proof_workflows.rules import code_of, matches
from tests.proof_workflows.workflow import ANY_CODE, Node, Task, Workflow

Row: TypeAlias = dict[str, Any]

_WORKFLOWS = """
    SELECT id, status, open_nodes, result, error_code, parent_workflow_id, parent_task_index, root_workflow_id, depth,
           good_until IS NOT NULL AS has_deadline, completed_at IS NOT NULL AS is_over, error IS NOT NULL AS has_error
    FROM horsies_workflows
"""
_NODES = """
    SELECT workflow_id, task_index, node_id, node_type, status, deps_total, deps_completed, deps_failed, deps_skipped,
           task_id, previous_task_ids, sub_workflow_id, sub_workflow_summary, result, error_code, map_index,
           map_position, completed_at IS NOT NULL AS is_ended, ready_at IS NOT NULL AS was_ready
    FROM horsies_workflow_tasks
"""
_TASKS = """
    SELECT id, status, workflow_id, task_name, queue_name, priority, kwargs, flags::text, claim_seq,
           good_until IS NOT NULL AS has_deadline
    FROM horsies_tasks WHERE workflow_id IS NOT NULL
"""


class Stored(NamedTuple):
    """All rows at one moment."""

    workflows: dict[str, Row]
    nodes: dict[tuple[str, str], Row]  # by their id
    tasks: dict[str, Row]


async def read(conn: AsyncConnection[Any]) -> Stored:
    async with conn.transaction(), conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        workflows = {row["id"]: row for row in await (await cursor.execute(_WORKFLOWS)).fetchall()}
        nodes = {(row["workflow_id"], row["node_id"]): row for row in await (await cursor.execute(_NODES)).fetchall()}
        tasks = {row["id"]: row for row in await (await cursor.execute(_TASKS)).fetchall()}
    return Stored(workflows, nodes, tasks)


def differences(world: World, stored: Stored) -> list[str]:
    """Empty if everything is as the model says."""
    wrong: list[str] = []
    for workflow in world.workflows():
        if workflow.id is None or workflow.id not in stored.workflows:
            wrong.append(f"{_named(workflow)} is not there")
            continue
        wrong += [f"{_named(workflow)}: {problem}" for problem in _workflow(workflow, stored)]
        for node in workflow.all_nodes():
            wrong += [f"{_named(workflow)}, {node.name} ({node.kind}): {problem}" for problem in _node(node, stored)]
    known = {workflow.id for workflow in world.workflows()}
    wrong += [f"workflow {row} should not be there" for name, row in stored.workflows.items() if name not in known]
    rows = {(node.workflow.id, node.name) for node in world.nodes()}
    wrong += [f"node {row} should not be there" for place, row in stored.nodes.items() if place not in rows]
    ids = {task.id for task in world.tasks()}
    return wrong + [f"task {row} should not be there" for name, row in stored.tasks.items() if name not in ids]


def _named(workflow: Workflow) -> str:
    if workflow.parent is None:
        return f"{workflow.plan.name} {workflow.id}"
    return f"{_named(workflow.parent.workflow)} > {workflow.parent.name}"


def _workflow(workflow: Workflow, stored: Stored) -> Iterator[str]:
    row = stored.workflows[workflow.id or ""]
    parent = workflow.parent
    if row["status"] != workflow.status:
        yield f"is {row['status']}, should be {workflow.status}"
    if not workflow.is_over and row["open_nodes"] != workflow.open_nodes:
        yield f"has {row['open_nodes']} open nodes, should have {workflow.open_nodes}"
    if row["is_over"] != workflow.is_over:
        yield f"completed_at is{'' if row['is_over'] else ' not'} there"
    place = (row["parent_workflow_id"], row["parent_task_index"], row["depth"])
    expected = (parent and parent.workflow.id, parent and parent.index, workflow.depth)
    if place != expected:
        yield f"has its place at {place}, should be {expected}"
    if row["has_deadline"] != workflow.has_deadline:
        yield f"has a deadline: {row['has_deadline']}"
    if workflow.status == "COMPLETED" and not matches(workflow.result, json.loads(row["result"] or "null")):
        yield f"came to {row['result']}, should be {workflow.result}"
    if workflow.status == "FAILED" and not {row["error_code"], ANY_CODE} & workflow.codes:
        yield f"failed with {row['error_code']}, should be {workflow.codes}"


def _node(node: Node, stored: Stored) -> Iterator[str]:
    row = stored.nodes.get((node.workflow.id or "", node.name))
    if row is None:
        yield "is not there"
        return
    if row["node_type"] != node.kind:
        yield f"is the row of a {row['node_type']}"
    if node.map is None and row["task_index"] != node.index:  # several maps may unfold in any order
        yield f"is at {row['task_index']}, should be at {node.index}"
    if row["status"] != node.status:
        yield f"is {row['status']}, should be {node.status}"
    if row["is_ended"] != node.is_ended:
        yield f"completed_at is{'' if row['is_ended'] else ' not'} there"
    result = json.loads(row["result"] or "null")
    if not matches(node.result, result):
        yield f"has the result {row['result']}, should be {node.result}"
    if node.status == "FAILED" and row["error_code"] != code_of(result):
        yield f"has the code {row['error_code']}, its result {row['result']}"
    yield from _counters(node, row)
    yield from _tasks(node, row, stored)
    yield from _child(node, row)
    if node.map is not None and (row["map_index"], row["map_position"]) != (node.map.index, node.position):
        yield f"is element {row['map_position']} of {row['map_index']}"


def _counters(node: Node, row: Row) -> Iterator[str]:
    """They matter as long as somebody will look at them."""
    if node.workflow.is_over or node.map is not None:
        return
    if node.status == "PENDING":
        counted = node.workflow.dependencies(node)
    elif node.status == "RUNNING" and node.elements:
        counted = [element.status for element in node.elements]
    else:
        return
    expected = [len(counted), *(counted.count(status) for status in ("COMPLETED", "FAILED", "SKIPPED"))]
    found = [row[f"deps_{name}"] for name in ("total", "completed", "failed", "skipped")]
    if found != expected:
        yield f"counts {found} (total, completed, failed, skipped), should be {expected}"


def _tasks(node: Node, row: Row, stored: Stored) -> Iterator[str]:
    if row["previous_task_ids"] != [task.id for task in node.former]:
        yield f"had the tasks {row['previous_task_ids']}, should be {[task.id for task in node.former]}"
    if node.task is None or row["task_id"] is None:
        if (node.task is None) != (row["task_id"] is None):
            yield f"has the task {row['task_id']}, should have {node.task}"
        return
    if node.task.id is None and row["task_id"] not in row["previous_task_ids"]:
        node.task.id = row["task_id"]
    if row["task_id"] != node.task.id:
        yield f"has the task {row['task_id']}, should be {node.task.id}"
        return
    for task in (*node.former, node.task):
        if task.id not in stored.tasks:
            yield f"its task {task.id} is not there"
        else:
            yield from _task(task, stored.tasks[task.id])


def _task(task: Task, row: Row) -> Iterator[str]:
    plan = task.node.plan
    if row["status"] != task.status:
        yield f"its task {task.id} is {row['status']}, should be {task.status}"
    if not matches(task.kwargs, json.loads(row["kwargs"] or "{}")):
        yield f"its task is called with {row['kwargs']}, should be {task.kwargs}"
    columns = (row["workflow_id"], row["task_name"], row["queue_name"], row["priority"], row["has_deadline"])
    workflow = task.node.workflow
    expected = (workflow.id, plan.task_name, plan.queue_name, plan.priority, workflow.has_deadline)
    if columns != expected or json.loads(row["flags"]) != json.loads(plan.flags_json or "{}"):
        yield f"its task has {columns} and {row['flags']}, should have {expected} and {plan.flags_json}"


def _child(node: Node, row: Row) -> Iterator[str]:
    if (node.child is None) != (row["sub_workflow_id"] is None):
        yield f"has the child {row['sub_workflow_id']}, should have {node.child and node.child.id}"
        return
    if node.child is None:
        return
    if node.child.id is None and row["sub_workflow_id"] not in [child.id for child in node.former_children]:
        node.child.id = row["sub_workflow_id"]
    if row["sub_workflow_id"] != node.child.id:
        yield f"has the child {row['sub_workflow_id']}, should be {node.child.id}"
    found = json.loads(row["sub_workflow_summary"] or "null")
    if not matches(node.summary, found):
        yield f"has the summary {found}, should be {node.summary}"
