"""Turns a checked draft into a plan: user objects become the columns of rows."""

from __future__ import annotations

import json
from typing import Any

from horsies.core.models.workflow.enums import OnError
from horsies.core.models.workflow.nodes import MapNode, Node, SubWorkflowNode, TaskNode
from horsies.core.producer.options import flags_of
from horsies.core.workflows.draft import Draft, map_param
from horsies.core.workflows.plan import MapOptions, NodePlan, WorkflowPlan


def plan_of(draft: Draft) -> WorkflowPlan:
    """The plan of a valid draft, without children."""
    return WorkflowPlan(
        name=draft.name,
        definition_key=draft.definition_key,
        nodes=tuple(_node(draft, index, node) for index, node in enumerate(draft.nodes)),
        on_error=_ON_ERROR[OnError(draft.on_error)],
        output_index=draft.output_index,
        success_policy=_policy(draft),
    )


_ON_ERROR: dict[OnError, Any] = {OnError.FAIL: "FAIL", OnError.PAUSE: "PAUSE"}


def _node(draft: Draft, index: int, node: Node[Any]) -> NodePlan:
    common: dict[str, Any] = {
        "node_id": draft.ids[index],
        "task_name": node.name,
        "kwargs_json": draft.kwargs_json[index],
        "dependencies": draft.dependencies[index],
        "args_from": {name: draft.index_of(source) for name, source in node.args_from.items()},
        "ctx_from": _ctx_from(draft, node),
        "allow_failed_deps": node.allow_failed_deps,
    }
    match node:
        case MapNode():
            return NodePlan(
                node_type="MAP",
                min_success=1 if node.join == "any" else node.min_success,
                map_options=MapOptions(draft.index_of(node.over) or 0, map_param(node) or "", node.max_parallel),
                **common,
                **_task(draft, node, draft.kwargs_json[index]),
            )
        case TaskNode():
            return NodePlan(
                node_type="TASK",
                join=node.join,
                min_success=node.min_success,
                **common,
                **_task(draft, node, draft.kwargs_json[index]),
            )
        case SubWorkflowNode():
            return NodePlan(
                node_type="SUBWORKFLOW",
                join=node.join,
                min_success=node.min_success,
                sub_workflow_key=node.workflow_def.definition_key,
                **common,
            )
    raise AssertionError(f"{type(node).__name__} is not a known kind of node")


def _task(draft: Draft, node: TaskNode[Any], kwargs_json: str | None) -> dict[str, Any]:
    fn = node.fn
    fn.sizes.watch(fn.task_name, "arguments", kwargs_json or "")  # T-17: a node that is too large is only warned about
    queue = fn.queue_name if node.queue is None else node.queue
    priority = fn.priority if node.queue is None else draft.queues[queue]
    flags = fn.flags_json
    if node.flags is not None:
        flags = json.dumps({**fn.flags, **flags_of(node.flags)}, separators=(",", ":"), sort_keys=True)
    return {
        "queue_name": queue,
        "priority": priority if node.priority is None else node.priority,
        "task_options": fn.options_json,
        "flags_json": flags,
        "good_until": node.good_until,
        "wants_meta": "workflow_meta" in fn.codec.signature.injected,
    }


def _ctx_from(draft: Draft, node: Node[Any]) -> tuple[int, ...] | None:
    if node.workflow_ctx_from is None:
        return None
    return tuple(draft.index_of(source) or 0 for source in node.workflow_ctx_from)


def _policy(draft: Draft) -> dict[str, Any] | None:
    policy = draft.success_policy
    if policy is None:
        return None
    return {
        "cases": [[draft.index_of(node) for node in case.required] for case in policy.cases],
        "optional": [draft.index_of(node) for node in policy.optional],
    }
