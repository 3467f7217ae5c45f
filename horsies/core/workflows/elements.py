"""The elements of a map: how the list becomes rows and tasks, and how their ends become the end of the map (F-95)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horsies.core.codec.serde import serialize_error_payload
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY, OutcomeCode
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.store.workflows import NewTask
from horsies.core.types.status import WorkflowTaskStatus
from horsies.core.workflows.ends import End
from horsies.core.workflows.inputs import (
    CTX,
    META,
    InputError,
    Payload,
    Source,
    context_of,
    elements,
    injected,
    mapped_result,
    meta,
    with_members,
    without_meta,
)

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Expansion:
    """The rows of the elements, READY, and what the row of the map stores about them."""

    rows: list[dict[str, Any]]
    options: str
    max_parallel: int | None


def expand(payload: Payload, sources: Mapping[int, Source], first: int) -> Expansion:
    """One row for each member of the list, with indexes from `first` on. `InputError` if there is no list."""
    options = dict(payload.map_options or {})
    if "over" not in options:
        raise InputError("its row does not name the node that it maps over")
    members = elements(sources.get(options["over"]))
    arguments = _arguments_for(payload, sources, options["param"])
    rows: list[dict[str, Any]] = [
        {
            "workflow_id": payload.workflow_id,
            "task_index": first + position,
            "node_id": f"{payload.node_id}[{position}]",
            "node_type": "ELEMENT",
            "task_name": payload.task_name,
            "task_kwargs": arguments(member, first + position),
            "queue_name": payload.queue_name,
            "priority": payload.priority,
            "task_options": payload.task_options,
            "flags": payload.flags,
            "good_until": payload.good_until and payload.good_until.isoformat(),
            "dependencies": [],
            "dependents": [],
            "args_from": {},
            "join_type": "all",
            "allow_failed_deps": False,
            "status": WorkflowTaskStatus.READY,
            "map_index": payload.task_index,
            "map_position": position,
        }
        for position, member in enumerate(members)
    ]
    kept = json.dumps({**options, "first": first, "count": len(rows)})
    return Expansion(rows, kept, options.get("max_parallel"))


def _arguments_for(payload: Payload, sources: Mapping[int, Source], param: str) -> Callable[[str, int], str]:
    """Makes the arguments of one element: those of the map, the element in its parameter, and its own place."""
    base, wants_meta = without_meta(payload.kwargs)
    shared = injected(payload, sources)

    def arguments(member: str, index: int) -> str:
        own = {param: member}
        if wants_meta:
            own[META] = meta(payload.workflow_id, index, payload.task_name)
        if payload.ctx_from is not None:
            own[CTX] = context_of(payload, sources, index)
        return with_members(base, {**shared, **own}) or "{}"

    return arguments


def task_of(payload: Payload, task_id: str, kwargs: str | None, good_until: datetime | None) -> NewTask:
    """The task of a node, or of an element of a map, that is enqueued with these arguments."""
    return NewTask(
        task_id, payload.workflow_id, payload.task_name, payload.queue_name or "default", payload.priority or 100,
        kwargs, payload.task_options, payload.flags, good_until,
    )  # fmt: skip


def map_end(results: Sequence[tuple[WorkflowTaskStatus, str | None, str | None]], min_success: int | None) -> End:
    """The end of a map whose elements have all ended; `results` has status, result and error code of each, in the order
    of the list."""
    completed = sum(status is WorkflowTaskStatus.COMPLETED for status, _, _ in results)
    if completed >= (len(results) if min_success is None else min_success):
        return End(WorkflowTaskStatus.COMPLETED, mapped_result([_seen(*one) for one in results]))
    failed = [place for place, (status, _, _) in enumerate(results) if status is WorkflowTaskStatus.FAILED]
    code = (results[failed[0]][2] if failed else None) or OutcomeCode.UPSTREAM_SKIPPED.value
    error = TaskError(
        error_code=BUILTIN_CODE_REGISTRY.get(code, code),
        message=f"{completed} of {len(results)} elements succeeded, {len(failed)} failed.",
        data={"failed": failed[:SHOWN], "succeeded": completed, "total": len(results)},
    )
    return End(WorkflowTaskStatus.FAILED, serialize_error_payload(TaskResult(err=error)), code)


def _seen(status: WorkflowTaskStatus, result: str | None, code: str | None) -> str | None:
    if status is not WorkflowTaskStatus.SKIPPED:
        return result
    error = TaskError(error_code=OutcomeCode.UPSTREAM_SKIPPED, message="The element was skipped.")
    return serialize_error_payload(TaskResult(err=error))
