"""Checks of the nodes of workflows: each is what its task, child or elements say, ran exactly when its join allowed it,
and the counters by which the engine goes are the truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.chaos.flow_history import Flow, Node
from tests.chaos.history import TERMINAL, History
from tests.chaos.violation import SLACK_S, Violation

NO_CHILD = frozenset({"SUBWORKFLOW_LOAD_FAILED"})
# Whoever builds a child is hit by these as well, and says that there is none.
FATAL_TO_HELPERS = ("kill", "stop", "term", "freeze")


def each_node_has_its_one_task(history: History) -> Iterator[Violation]:
    """No task is enqueued twice, and none without its node."""
    rule = "one task for each node"
    of = Counter(node.task_id for node in history.nodes if node.task_id is not None)
    for task in history.tasks:
        if task.workflow_id is not None and of[task.id] != 1:
            yield Violation(rule, f"{task.key} belongs to {of[task.id]} nodes of its workflow", task.id)
    children = Counter(flow.parent_id and (flow.parent_id, flow.parent_index) for flow in history.flows)
    for node in history.nodes:
        if node.task_id is not None and node.task_id not in history.by_id:
            yield Violation(rule, f"{node.node_id} of {node.workflow_id} names the task {node.task_id}, which is gone")
        if node.node_type == "SUBWORKFLOW" and children[node.key] > 1:
            yield Violation(rule, f"{node.node_id} of {node.workflow_id} has {children[node.key]} children")


def nodes_are_what_their_tasks_and_children_say(history: History) -> Iterator[Violation]:
    rule = "nodes are what their tasks say"
    for node in history.nodes:
        flow = history.flow_by_id[node.workflow_id]
        problem = (
            _wrong_child(history, node)
            if node.node_type == "SUBWORKFLOW"
            else None
            if node.node_type == "MAP"
            else _wrong_task(flow, node)
        )
        if problem is not None:
            yield Violation(rule, f"{flow.kind} {flow.id}: node {node.node_id} {problem}", node.task_id)


def _wrong_task(flow: Flow, node: Node) -> str | None:
    said = f"is {node.status} ({node.error_code}), its task {node.task_status}"
    match node.status:
        case "COMPLETED":
            is_right = node.task_status == "COMPLETED" and node.result == node.task_result
        case "FAILED":
            is_right = node.task_status in ("FAILED", "EXPIRED", "CANCELLED") and node.result == node.task_result
        case "SKIPPED":
            is_right = node.task_status is None or (flow.was_stopped and node.task_status in ("CANCELLED", "EXPIRED"))
        case _:
            is_right = True  # another check's finding
    return None if is_right else said


def _wrong_child(history: History, node: Node) -> str | None:
    child = history.flow_by_id.get(node.child_id or "")
    if child is None:
        if node.status == "SKIPPED" or (node.error_code in NO_CHILD and _was_hit(history, node)):
            return None
        return f"is {node.status} ({node.error_code}) and has no child"
    if (child.parent_id, child.parent_index) != node.key:
        return f"names the child {child.id}, which has another parent"
    if (node.status == "COMPLETED") != (child.status == "COMPLETED") or node.status == "SKIPPED":
        return f"is {node.status}, its child {child.status}"
    return None


def _was_hit(history: History, node: Node) -> bool:
    moves = history.flow_moves_of.get(node.key, [])
    begin, end = (moves[0].at, moves[-1].at) if moves else (0.0, float("inf"))
    return any(
        fault.kind.startswith(FATAL_TO_HELPERS) and fault.begin <= end and fault.end >= begin - SLACK_S
        for fault in history.faults
    ) or any(run.how.startswith("kills ") and begin - SLACK_S <= run.last <= end for run in history.runs)


def joins_are_kept(history: History) -> Iterator[Violation]:
    """Who ran had what it waited for, before it was enqueued; who was skipped could not have it."""
    for flow in history.flows:
        nodes = {node.index: node for node in history.nodes_of[flow.id]}
        for node in nodes.values():
            if node.node_type == "ELEMENT" or not node.dependencies:
                continue
            if (problem := _wrong_join(history, flow, node, nodes)) is not None:
                yield Violation("joins are kept", f"{flow.kind} {flow.id}: node {node.node_id} {problem}", node.task_id)


def _wrong_join(history: History, flow: Flow, node: Node, nodes: Mapping[int, Node]) -> str | None:
    sources = [nodes[index] for index in node.dependencies]
    completed = [source for source in sources if source.status == "COMPLETED"]
    needed = _needed(node)
    may_run = len(completed) >= needed
    has_run = node.status != "SKIPPED" or node.task_status is not None
    if has_run and not may_run:
        return f"ran, though {len(completed)} of the {needed} it needs have completed"
    if not has_run and may_run and not flow.was_stopped:
        return f"was skipped, though {len(completed)} have completed and it needs {needed}"
    enqueued = _begin(history, node)
    if enqueued is None:
        return None
    ends = [_end(history, source) for source in sources]
    in_time = sum(end is not None and end < enqueued for end in ends)
    # The one that waits for all waits for their ends, whatever they are.
    if in_time < (len(sources) if node.join == "all" else needed):
        known = sum(end is not None for end in ends)
        if known == len(sources):
            return f"was enqueued when {in_time} of {len(sources)} had ended"
    return None


def _needed(node: Node) -> int:
    if node.join == "any":
        return 1
    if node.join == "quorum":
        return node.min_success or 0
    return 0 if node.allow_failed else len(node.dependencies)


def _begin(history: History, node: Node) -> int | None:
    """The number of the change by which its task came to be; None if it is no task."""
    moves = history.moves_of.get(node.task_id or "", [])
    return moves[0].number if moves else None


def _end(history: History, node: Node) -> int | None:
    moves = history.moves_of.get(node.task_id or "", [])
    return moves[-1].number if moves and moves[-1].status in TERMINAL else None


def counters_are_the_truth(history: History) -> Iterator[Violation]:
    rule = "counters are the truth"
    for flow in history.flows:
        nodes = {node.index: node for node in history.nodes_of[flow.id]}
        own = [node for node in nodes.values() if node.node_type != "ELEMENT"]
        is_open = sum(node.status not in ("COMPLETED", "FAILED", "SKIPPED") for node in own)
        if is_open != flow.open_nodes:
            yield Violation(rule, f"{flow.kind} {flow.id} counts {flow.open_nodes} open nodes, there are {is_open}")
        for node in own:
            counted = _counted(node, nodes)
            truth = Counter(source.status for source in counted)
            expected = (truth["COMPLETED"], truth["FAILED"], truth["SKIPPED"])
            if (node.total, node.counts) != (len(counted), expected):
                text = (
                    f"{flow.kind} {flow.id}: node {node.node_id} counts {node.counts} of {node.total}, it is {expected}"
                )
                yield Violation(rule, text, node.task_id)
            for index in node.dependencies:
                if node.index not in nodes[index].dependents:
                    yield Violation(rule, f"{flow.id}: node {index} does not know that {node.index} waits for it")


def _counted(node: Node, nodes: Mapping[int, Node]) -> list[Node]:
    """What a node counts: those it waits for, or, if it is a map that has become some, its elements (D-50)."""
    elements = [other for other in nodes.values() if other.map_index == node.index]
    return elements or [nodes[index] for index in node.dependencies]


def nodes_are_given_what_the_others_gave(history: History) -> Iterator[Violation]:
    for node in history.nodes:
        nodes = {other.index: other for other in history.nodes_of[node.workflow_id]} if node.args_from else {}
        for parameter, index in node.args_from.items():
            if node.kwargs is None:
                continue
            given, source = node.kwargs.get(parameter), nodes[index]
            if source.status == "SKIPPED":
                is_right = given is not None and "UPSTREAM_SKIPPED" in str(given.get("err"))
            else:
                is_right = given == source.result
            if not is_right:
                text = f"{node.workflow_id}: {parameter!r} of node {node.node_id} is {given}, node {index} gave"
                yield Violation("nodes are given what others gave", f"{text} {source.result}", node.task_id)


def maps_have_their_elements(history: History) -> Iterator[Violation]:
    rule = "maps have their elements"
    for node in history.nodes:
        if node.node_type != "MAP":
            continue
        nodes = history.nodes_of[node.workflow_id]
        elements = sorted((o for o in nodes if o.map_index == node.index), key=lambda o: o.map_position or 0)
        problem = _wrong_elements(node, elements) or _too_many(history, node, elements)
        if problem is not None:
            yield Violation(rule, f"{node.workflow_id}: map {node.node_id} {problem}", elements[0].task_id)


def _wrong_elements(node: Node, elements: list[Node]) -> str | None:
    if not elements:
        return None
    if [element.map_position for element in elements] != list(range(len(elements))):
        return f"has the positions {[element.map_position for element in elements]}"
    is_complete = all(element.status == "COMPLETED" for element in elements)
    if (node.status == "COMPLETED") != is_complete:
        return f"is {node.status}, its elements {Counter(element.status for element in elements)}"
    if is_complete and node.result != {"ok": [element.result for element in elements]}:
        return "has another result than its elements"
    return None


def _too_many(history: History, node: Node, elements: list[Node]) -> str | None:
    """More of them on their way at once than it may have."""
    if node.max_parallel is None:
        return None
    changes: list[tuple[int, int]] = []
    for element in elements:
        if (begin := _begin(history, element)) is not None:
            changes.append((begin, 1))
            end = _end(history, element)
            changes += [(end, -1)] if end is not None else []
    under_way = most = 0
    for _, by in sorted(changes):
        under_way += by
        most = max(most, under_way)
    return f"had {most} on their way at once, and may have {node.max_parallel}" if most > node.max_parallel else None
