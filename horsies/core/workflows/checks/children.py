"""Checks child workflows, and the declared output of a definition (HRS-016 of a child, HRS-025)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from horsies.core.definition import TaskDefinition
from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.models.workflow.nodes import Node, SubWorkflowNode, TaskNode
from horsies.core.workflows.checks.fits import fits, shown
from horsies.core.workflows.draft import Draft, type_of


def problems(draft: Draft) -> Iterator[HorsiesError]:
    """The mistakes."""
    for index, node in enumerate(draft.nodes):
        if not isinstance(node, SubWorkflowNode):
            continue
        if not is_sound(node):
            text = f"workflow_def must be a subclass of WorkflowDefinition, not {node.workflow_def!r:.100}"
            yield draft.node_error(index, ErrorCode.CONFIG_INVALID, text)
        elif not isinstance(node.workflow_def.definition_key, str) or not node.workflow_def.definition_key:
            text = f"{node.workflow_def.__qualname__} has no definition_key, so workers could not find it"
            yield draft.node_error(index, ErrorCode.WORKFLOW_NO_DEFINITION_KEY, text)
    place = draft.output_index
    is_unknown = draft.output is not None and place is None  # a finding of its own (HRS-011)
    if draft.declared and not is_unknown:
        output = None if place is None else draft.nodes[place]
        if problem := output_problem(output, draft.declared[0]):
            yield draft.error(ErrorCode.WORKFLOW_OUTPUT_TYPE_MISMATCH, problem)


def is_sound(node: Node[Any]) -> bool:
    """Whether the node runs something valid, so that more can be checked."""
    if isinstance(node, SubWorkflowNode):
        return isinstance(node.workflow_def, type) and hasattr(node.workflow_def, "takes_parameters")
    return isinstance(node, TaskNode) and isinstance(node.fn, TaskDefinition)


def output_problem(output: Node[Any] | None, declared: Any) -> str | None:
    """Why a definition that declares this type cannot have this output; None if it can."""
    if output is None:
        if declared is Any or declared is None or declared is type(None):
            return None
        return f"WorkflowDefinition[{shown(declared)}] without an output: name one in Meta.output, or declare None"
    gives = type_of(output)
    if fits(gives, declared):
        return None
    return f"it is declared to give {shown(declared)}, but its output {output!r} gives {shown(gives)}"
