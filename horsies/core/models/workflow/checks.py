"""What is wrong with a workflow, found when it is built (F-90). All findings are reported together, each with the line
of the node or of the workflow that it is about.

This module checks the workflow as a whole, its graph, and the options of its nodes. `input_checks.py` checks what the
nodes are called with.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from horsies.core.errors import ErrorCode, HorsiesError, MultipleWorkflowErrors, ValidationReport
from horsies.core.models.base import MOST
from horsies.core.models.workflow import input_checks, nodes, results
from horsies.core.models.workflow.plan import Draft
from horsies.core.tasks.definition import TaskDefinition, flags_of

MAX_NAME_LENGTH = 255

JOINS = ("all", "any", "quorum")

_NODE_ID = re.compile(r"[A-Za-z0-9_\-:.]+")

_SHOWN = 8  # nodes of a cycle


def check(draft: Draft) -> None:
    """Raise the mistakes in the draft."""
    report = ValidationReport(phase=f"workflow {draft.name!r}")
    for problems in _KINDS:
        for error in problems(draft):
            report.add(error)
    if len(report) > 1:
        raise MultipleWorkflowErrors(report)
    report.raise_if_any()


def find_cycle(dependencies: tuple[tuple[int, ...], ...]) -> list[int]:
    """One cycle, as indexes of which each waits for the next; empty if there is none."""
    waiting = [len(each) for each in dependencies]
    dependents: list[list[int]] = [[] for _ in dependencies]
    for index, each in enumerate(dependencies):
        for source in each:
            dependents[source].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    for done in ready:  # it grows while it is walked
        for index in dependents[done]:
            waiting[index] -= 1
            if waiting[index] == 0:
                ready.append(index)
    stuck = {index for index, count in enumerate(waiting) if count}
    return _walk(dependencies, stuck) if stuck else []


def _shape_problems(draft: Draft) -> Iterator[HorsiesError]:
    """Name, key, nodes and their ids (HRS-001 to HRS-004, HRS-016)."""
    yield from _texts(draft)
    if not draft.nodes:
        help_text = "tasks=[a.node()(...), ...]; a definition with build_with must be built by build_with"
        yield draft.error(ErrorCode.WORKFLOW_NO_NODES, "it has no nodes", help_text)
    if draft.on_error not in list(results.OnError):
        yield draft.error(ErrorCode.CONFIG_INVALID, f"on_error must be 'fail' or 'pause', not {draft.on_error!r}")
    yield from _ids(draft)


def _texts(draft: Draft) -> Iterator[HorsiesError]:
    name, key = draft.name, draft.definition_key
    if not isinstance(name, str) or not name.strip():
        yield draft.error(ErrorCode.WORKFLOW_NO_NAME, "it has no name")
    elif len(name) > MAX_NAME_LENGTH or "\0" in name:
        yield draft.error(
            ErrorCode.WORKFLOW_NO_NAME, f"a name must have 1 to {MAX_NAME_LENGTH} characters, without NUL"
        )
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_NAME_LENGTH or "\0" in key:
        yield draft.error(
            ErrorCode.WORKFLOW_NO_DEFINITION_KEY,
            f"it has no definition_key of 1 to {MAX_NAME_LENGTH} characters",
            "workers find the definition by its definition_key; keep the key when code moves",
        )


def _ids(draft: Draft) -> Iterator[HorsiesError]:
    seen: dict[str, int] = {}
    placed: dict[int, int] = {}
    for index, (node, node_id) in enumerate(zip(draft.nodes, draft.ids, strict=True)):
        if not isinstance(node_id, str) or len(node_id) > nodes.MAX_ID_LENGTH or not _NODE_ID.fullmatch(node_id):
            rule = f"node_id must match [A-Za-z0-9_\\-:.]+ and have 1 to {nodes.MAX_ID_LENGTH} characters"
            text = f"{rule}, not {node_id!r:.200}"
            yield draft.node_error(index, ErrorCode.WORKFLOW_INVALID_NODE_ID, text)
            continue
        if (first := placed.setdefault(id(node.origin), index)) != index:
            text = f"the same node is listed twice, at {first} and at {index}; make a second node"
            yield draft.node_error(index, ErrorCode.WORKFLOW_DUPLICATE_NODE_ID, text)
        elif (first := seen.setdefault(node_id, index)) != index:
            error = draft.node_error(
                index,
                ErrorCode.WORKFLOW_DUPLICATE_NODE_ID,
                f"node {first} has the same id; give one of them another node_id",
            )
            yield error.with_note(f"the first one is at {draft.nodes[first].location}")


def _graph_problems(draft: Draft) -> Iterator[HorsiesError]:
    """Edges, roots, cycles, joins, the output and the success policy (HRS-005 to HRS-007, HRS-011 to HRS-013)."""
    yield from _edges(draft)
    if draft.nodes and all(node.waits_for for node in draft.nodes):
        yield draft.error(ErrorCode.WORKFLOW_NO_ROOT_TASKS, "every node waits for another, so none can start")
    if cycle := find_cycle(draft.dependencies):
        names = " → ".join(draft.ids[index] for index in cycle[:_SHOWN])
        more = " → …" if len(cycle) > _SHOWN else ""
        yield draft.node_error(
            cycle[0],
            ErrorCode.WORKFLOW_CYCLE_DETECTED,
            f"nodes wait for each other: {names}{more} → {draft.ids[cycle[0]]}",
        )
    if draft.output is not None and draft.output_index is None:
        text = f"output {_shown(draft.output)} is not one of its nodes"
        yield draft.error(ErrorCode.WORKFLOW_INVALID_OUTPUT, text)
    if draft.success_policy is not None:
        yield from _policy(draft, draft.success_policy)
    for index, node in enumerate(draft.nodes):
        if problem := _join_problem(node):
            yield draft.node_error(index, ErrorCode.WORKFLOW_INVALID_JOIN, problem)


def _walk(dependencies: tuple[tuple[int, ...], ...], stuck: set[int]) -> list[int]:
    """Every stuck node waits for a stuck node, so following these edges returns to a visited one."""
    path: dict[int, int] = {}
    index = min(stuck)
    while index not in path:
        path[index] = len(path)
        index = next(source for source in dependencies[index] if source in stuck)
    return [node for node, place in path.items() if place >= path[index]]


def _edges(draft: Draft) -> Iterator[HorsiesError]:
    for index, node in enumerate(draft.nodes):
        for other in node.waits_for:
            if draft.index_of(other) is None or not isinstance(other, nodes.Node):
                text = f"it waits for {_shown(other)}, which is not a node of the workflow"
                yield draft.node_error(
                    index, ErrorCode.WORKFLOW_INVALID_DEPENDENCY, text, "put every node into tasks=[...]"
                )


def _policy(draft: Draft, policy: Any) -> Iterator[HorsiesError]:
    code = ErrorCode.WORKFLOW_INVALID_SUCCESS_POLICY
    if not isinstance(policy, nodes.SuccessPolicy):
        yield draft.error(code, f"success_policy must be a SuccessPolicy, not {type(policy).__name__}")
        return
    cases = tuple(policy.cases)
    if not cases:
        yield draft.error(code, "its success policy has no cases, so it could never succeed")
    for number, case in enumerate(cases):
        if not isinstance(case, nodes.SuccessCase):
            yield draft.error(code, f"cases[{number}] must be a SuccessCase, not {type(case).__name__}")
        elif not case.required:
            yield draft.error(code, f"cases[{number}] requires no node, so it would always hold")
        else:
            yield from _unknown(draft, case.required, f"cases[{number}] requires")
    yield from _unknown(draft, policy.optional, "optional names")


def _unknown(draft: Draft, given: Any, who: str) -> Iterator[HorsiesError]:
    for node in given:
        if draft.index_of(node) is None:
            yield draft.error(
                ErrorCode.WORKFLOW_INVALID_SUCCESS_POLICY, f"{who} {_shown(node)}, which is not one of its nodes"
            )


def _join_problem(node: nodes.Node[Any]) -> str | None:
    least = node.min_success
    if node.join not in JOINS:
        return f"join must be one of {', '.join(map(repr, JOINS))}, not {node.join!r}"
    if least is None:
        return "join='quorum' needs min_success" if node.join == "quorum" else None
    if isinstance(node, nodes.MapNode):  # it is about the elements, whose number is not known yet
        if node.join == "any":
            return "join='any' means a minimum of 1; min_success contradicts it"
        if not _is_count(least):
            return f"min_success must be a number of elements, 1 to {MOST}, not {_number(least)}"
        return None
    if node.join != "quorum":
        return f"min_success is only for join='quorum', not for {node.join!r}"
    most = len(tuple(node.waits_for))
    if not _is_count(least, most):
        return f"min_success must be 1 to {most}, the number of nodes it waits for, not {least!r}"
    return None


def _is_count(value: Any, most: int = MOST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _number(value: Any) -> str:
    """The value for a message; a number may have more digits than Python is willing to print."""
    return "a larger number" if isinstance(value, int) and value > MOST else repr(value)


def _shown(node: Any) -> str:
    if isinstance(node, nodes.NodeKey):
        return repr(node.node_id)
    return repr(node) if isinstance(node, nodes.Node | str) else str(type(node))


def _option_problems(draft: Draft) -> Iterator[HorsiesError]:
    """What a node is enqueued with: its task, queue, priority, deadline and flags (HRS-014, HRS-015, HRS-300; HRS-215
    for what no other code speaks for)."""
    for index, node in enumerate(draft.nodes):
        if not isinstance(node, nodes.TaskNode):
            continue
        if problem := _task_problem(draft, node):
            yield draft.node_error(index, ErrorCode.TASK_NOT_REGISTERED, problem)
            continue
        if problem := _queue_problem(draft, node):
            yield draft.node_error(index, ErrorCode.WORKFLOW_UNRESOLVED_QUEUE, problem)
        if node.priority is not None and not _is_count(node.priority, 100):
            text = f"priority must be 1 to 100 (1 is served first), not {node.priority!r}"
            yield draft.node_error(index, ErrorCode.WORKFLOW_UNRESOLVED_PRIORITY, text)
        for problem in _other_problems(node):
            yield draft.node_error(index, ErrorCode.CONFIG_INVALID, problem)


def _task_problem(draft: Draft, node: nodes.TaskNode[Any]) -> str | None:
    if not isinstance(node.fn, TaskDefinition):
        return f"fn must be a task, not {type(node.fn).__name__}; @app.task('name') turns a function into a task"
    if draft.app is not None and node.fn.task_name not in draft.app.tasks:
        return f"task {node.fn.task_name!r} belongs to another app, and the workers of this one do not know it"
    return None


def _queue_problem(draft: Draft, node: nodes.TaskNode[Any]) -> str | None:
    queue = node.fn.queue_name if node.queue is None else node.queue
    known = node.fn.known_queues if draft.app is None else draft.queues.keys()
    return None if queue in known else f"there is no queue {queue!r}; known: {', '.join(sorted(known))}"


def _other_problems(node: nodes.TaskNode[Any]) -> Iterator[str]:
    until = node.good_until
    if until is not None and (not isinstance(until, datetime) or until.utcoffset() is None):
        yield "good_until must be a datetime with a time zone: datetime.now(UTC) + timedelta(...)"
    try:
        flags_of(node.flags)
    except (ValueError, TypeError) as problem:
        yield str(problem)
    if isinstance(node, nodes.MapNode) and node.max_parallel is not None and not _is_count(node.max_parallel):
        yield f"max_parallel must be a number of elements, 1 to {MOST}, not {_number(node.max_parallel)}"


_KINDS = (_shape_problems, _graph_problems, _option_problems, input_checks.child_problems, input_checks.input_problems)
