"""The nodes as a graph: edges, roots, cycles, joins, the output and the success policy (HRS-005 to HRS-007, HRS-011 to
HRS-013).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.models.workflow.nodes import MapNode, Node, NodeKey
from horsies.core.models.workflow.policies import SuccessCase, SuccessPolicy
from horsies.core.workflows.draft import Draft

JOINS = ("all", "any", "quorum")
_SHOWN = 8


def problems(draft: Draft) -> Iterator[HorsiesError]:
    """The mistakes in the graph."""
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
            if draft.index_of(other) is None or not isinstance(other, Node):
                text = f"it waits for {_shown(other)}, which is not a node of the workflow"
                yield draft.node_error(
                    index, ErrorCode.WORKFLOW_INVALID_DEPENDENCY, text, "put every node into tasks=[...]"
                )


def _policy(draft: Draft, policy: Any) -> Iterator[HorsiesError]:
    code = ErrorCode.WORKFLOW_INVALID_SUCCESS_POLICY
    if not isinstance(policy, SuccessPolicy):
        yield draft.error(code, f"success_policy must be a SuccessPolicy, not {type(policy).__name__}")
        return
    cases = tuple(policy.cases)
    if not cases:
        yield draft.error(code, "its success policy has no cases, so it could never succeed")
    for number, case in enumerate(cases):
        if not isinstance(case, SuccessCase):
            yield draft.error(code, f"cases[{number}] must be a SuccessCase, not {type(case).__name__}")
        elif not case.required:
            yield draft.error(code, f"cases[{number}] requires no node, so it would always hold")
        else:
            yield from _unknown(draft, case.required, f"cases[{number}] requires")
    yield from _unknown(draft, policy.optional, "optional names")


def _unknown(draft: Draft, nodes: Any, who: str) -> Iterator[HorsiesError]:
    for node in nodes:
        if draft.index_of(node) is None:
            yield draft.error(
                ErrorCode.WORKFLOW_INVALID_SUCCESS_POLICY, f"{who} {_shown(node)}, which is not one of its nodes"
            )


def _join_problem(node: Node[Any]) -> str | None:
    if isinstance(node, MapNode):
        return _map_join_problem(node)
    if node.join not in JOINS:
        return f"join must be one of {', '.join(map(repr, JOINS))}, not {node.join!r}"
    if node.join != "quorum":
        return None if node.min_success is None else f"min_success is only for join='quorum', not for {node.join!r}"
    least = node.min_success
    if least is None:
        return "join='quorum' needs min_success"
    most = len(node.waits_for)
    if not _is_count(least) or least > most:
        return f"min_success must be 1 to {most}, the number of nodes it waits for, not {least!r}"
    return None


def _map_join_problem(node: MapNode[Any]) -> str | None:
    """The join of a map is about its elements, whose number is not known yet; a minimum alone is enough."""
    if node.join not in JOINS:
        return f"join must be one of {', '.join(map(repr, JOINS))}, not {node.join!r}"
    least = node.min_success
    if least is None:
        return "join='quorum' needs min_success" if node.join == "quorum" else None
    if node.join == "any":
        return "join='any' means a minimum of 1; min_success contradicts it"
    return None if _is_count(least) else f"min_success must be a number of elements, 1 or more, not {least!r}"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _shown(node: Any) -> str:
    return (
        repr(node)
        if isinstance(node, Node | str)
        else repr(node.node_id)
        if isinstance(node, NodeKey)
        else str(type(node))
    )
