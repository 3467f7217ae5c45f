"""A plan as rows, and how they are written in one transaction (F-80): the workflow, its nodes, the tasks of nodes that
wait for nothing, and the same for its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from horsies.core.db import Connection
from horsies.core.models.sending import with_node, with_trace
from horsies.core.models.workflow.plan import NodePlan, WorkflowPlan
from horsies.core.models.workflow.registry import with_members
from horsies.core.producer.enqueue import new_task_ids
from horsies.core.store import workflows
from horsies.core.store.workflows import Key, NewTask, Payload
from horsies.core.types import WorkflowTaskStatus
from horsies.core.workflows.inputs import CTX, META, context, meta


@dataclass(slots=True)
class Layout:
    """What is inserted in one transaction, in this order (each refers to the rows before it)."""

    workflows: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[NewTask] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def carry(self, trace: str | None) -> None:
        """Add this trace context to the options of every node, and so to every task and child workflow."""
        if trace is not None:
            self.tasks = [task._replace(task_options=with_trace(task.task_options, trace)) for task in self.tasks]
            for node in self.nodes:
                node["task_options"] = with_trace(node["task_options"], trace)


@dataclass(frozen=True, slots=True)
class TreePosition:
    """The position of a workflow in its tree."""

    id: str
    root: str
    parent: Key | None = None
    depth: int = 0

    def below(self, index: int) -> TreePosition:
        return TreePosition(str(uuid4()), self.root, (self.id, index), self.depth + 1)


def height(plan: WorkflowPlan) -> int:
    """How many levels of children it has."""
    return max((1 + height(child) for child in plan.children.values()), default=0)


def lay_out(
    plan: WorkflowPlan, position: TreePosition, *, good_until: datetime | None = None, sent_at: datetime | None = None
) -> Layout:
    """Everything that the start of this plan writes."""
    layout = Layout()
    _add(layout, plan, position, good_until, sent_at, new_task_ids())
    return layout


async def write_layout(conn: Connection, layout: Layout) -> bool:
    """Insert all of it, in the caller's transaction or a separate one. False, without any change, if a workflow with
    that id exists (F-82)."""
    async with conn.transaction():
        return await insert_layout(conn, layout)


async def insert_layout(conn: Connection, layout: Layout) -> bool:
    """The same in the caller's transaction, which is over if a statement fails."""
    if not await workflows.insert(conn, layout.workflows[:1]):
        return False
    if layout.workflows[1:]:
        await workflows.insert(conn, layout.workflows[1:])
    await workflows.insert_tasks(conn, layout.tasks)
    await workflows.insert_nodes(conn, layout.nodes)
    return True


def earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    """The earlier of two deadlines (F-96)."""
    return min(one, other) if one is not None and other is not None else one or other


def task_of_node(
    node: NodePlan, task_id: str, workflow_id: str, kwargs: str | None, good_until: datetime | None
) -> NewTask:
    """The task of a node that waits for nothing."""
    return NewTask(
        task_id, workflow_id, node.task_name, node.queue_name or "default", node.priority or 100, kwargs,
        with_node(node.task_options, node.node_id), node.flags_json, earlier(node.good_until, good_until),
    )  # fmt: skip


def task_of_payload(payload: Payload, task_id: str, kwargs: str | None, good_until: datetime | None) -> NewTask:
    """The task of a node, or of an element of a map, that is enqueued with these arguments."""
    return NewTask(
        task_id, payload.workflow_id, payload.task_name, payload.queue_name or "default", payload.priority or 100,
        kwargs, with_node(payload.task_options, payload.node_id), payload.flags, good_until,
    )  # fmt: skip


def _add(
    layout: Layout,
    plan: WorkflowPlan,
    position: TreePosition,
    good_until: datetime | None,
    sent_at: datetime | None,
    ids: Iterator[str],
) -> None:
    layout.workflows.append(_workflow(plan, position, good_until, sent_at))
    for index, (node, dependents) in enumerate(zip(plan.nodes, plan.dependents(), strict=True)):
        kwargs = node.kwargs_json
        if node.wants_meta:
            kwargs = with_members(kwargs, {META: meta(position.id, index, node.task_name)})
        row = _node(node, position.id, index, dependents, kwargs)
        if not node.dependencies:
            if node.node_type == "TASK":
                if node.ctx_from is not None:
                    kwargs = with_members(kwargs, {CTX: context(position.id, index, node.task_name)})
                task = task_of_node(node, next(ids), position.id, kwargs, good_until)
                layout.tasks.append(task)
                row |= {"status": WorkflowTaskStatus.ENQUEUED, "task_id": task.id}
            elif index in plan.children:
                child = position.below(index)
                _add(layout, plan.children[index], child, good_until, sent_at, ids)
                row |= {"status": WorkflowTaskStatus.RUNNING, "sub_workflow_id": child.id}
            else:
                row["status"] = WorkflowTaskStatus.READY
        layout.nodes.append(row)


def _workflow(
    plan: WorkflowPlan, position: TreePosition, good_until: datetime | None, sent_at: datetime | None
) -> dict[str, Any]:
    parent, index = position.parent or (None, None)
    return {
        "id": position.id,
        "name": plan.name,
        "definition_key": plan.definition_key,
        "on_error": plan.on_error,
        "output_index": plan.output_index,
        "success_policy": plan.success_policy,
        "parent_workflow_id": parent,
        "parent_task_index": index,
        "root_workflow_id": position.root,
        "depth": position.depth,
        "good_until": good_until and good_until.isoformat(),
        "open_nodes": len(plan.nodes),
        "sent_at": sent_at and sent_at.isoformat(),
    }


def _node(node: NodePlan, workflow_id: str, index: int, dependents: list[int], kwargs: str | None) -> dict[str, Any]:
    options = node.map_options
    return {
        "workflow_id": workflow_id,
        "task_index": index,
        "node_id": node.node_id,
        "node_type": node.node_type,
        "task_name": node.task_name,
        "task_kwargs": kwargs,
        "queue_name": node.queue_name,
        "priority": node.priority,
        "task_options": node.task_options,
        "flags": node.flags_json,
        "good_until": node.good_until and node.good_until.isoformat(),
        "dependencies": node.dependencies,
        "dependents": dependents,
        "args_from": {
            name: {"node": index, "takes": node.forms[name]} if node.forms.get(name, "result") != "result" else index
            for name, index in node.args_from.items()
        },
        "ctx_from": node.ctx_from,
        "join_type": node.join,
        "min_success": node.min_success,
        "allow_failed_deps": node.allow_failed_deps,
        "status": WorkflowTaskStatus.PENDING,
        "map_options": options and asdict(options),
        "sub_workflow_key": node.sub_workflow_key,
    }
