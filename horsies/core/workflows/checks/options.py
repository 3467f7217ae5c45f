"""Checks the options of a node: its task, queue, priority, deadline and flags (HRS-014, HRS-015, HRS-300; HRS-215 for
everything else).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from horsies.core.definition import TaskDefinition
from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.models.workflow.nodes import MapNode, TaskNode
from horsies.core.producer.options import flags_of
from horsies.core.workflows.draft import Draft


def problems(draft: Draft) -> Iterator[HorsiesError]:
    """The mistakes."""
    for index, node in enumerate(draft.nodes):
        if not isinstance(node, TaskNode):
            continue
        if problem := _task_problem(draft, node):
            yield draft.node_error(index, ErrorCode.TASK_NOT_REGISTERED, problem)
            continue
        if problem := _queue_problem(draft, node):
            yield draft.node_error(index, ErrorCode.WORKFLOW_UNRESOLVED_QUEUE, problem)
        if not _is_priority(node.priority):
            text = f"priority must be 1 to 100 (1 is served first), not {node.priority!r}"
            yield draft.node_error(index, ErrorCode.WORKFLOW_UNRESOLVED_PRIORITY, text)
        for problem in _other_problems(node):
            yield draft.node_error(index, ErrorCode.CONFIG_INVALID, problem)


def _task_problem(draft: Draft, node: TaskNode[Any]) -> str | None:
    if not isinstance(node.fn, TaskDefinition):
        return f"fn must be a task, not {type(node.fn).__name__}; @app.task('name') turns a function into a task"
    if draft.app is not None and node.fn.task_name not in draft.app.tasks:
        return f"task {node.fn.task_name!r} belongs to another app, and the workers of this one do not know it"
    return None


def _queue_problem(draft: Draft, node: TaskNode[Any]) -> str | None:
    queue = node.fn.queue_name if node.queue is None else node.queue
    known = node.fn.known_queues if draft.app is None else draft.queues.keys()
    return None if queue in known else f"there is no queue {queue!r}; known: {', '.join(sorted(known))}"


def _is_priority(priority: Any) -> bool:
    if priority is None:
        return True
    return isinstance(priority, int) and not isinstance(priority, bool) and 1 <= priority <= 100


def _other_problems(node: TaskNode[Any]) -> Iterator[str]:
    until = node.good_until
    if until is not None and (not isinstance(until, datetime) or until.utcoffset() is None):
        yield "good_until must be a datetime with a time zone: datetime.now(UTC) + timedelta(...)"
    try:
        flags_of(node.flags)
    except (ValueError, TypeError) as problem:
        yield str(problem)
    if isinstance(node, MapNode) and node.max_parallel is not None:
        most = node.max_parallel
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            yield f"max_parallel must be a number of elements, 1 or more, not {most!r}"
