"""Checks of workflows: each comes to rest in a state that its nodes justify, by arrows that exist, and nothing starts
in one that is paused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

from tests.chaos.flow_history import FLOW_TERMINAL, NODE_TERMINAL, Flow, Node
from tests.chaos.history import History, pid_of
from tests.chaos.violation import SLACK_S, Violation

FLOW_ARROWS = frozenset(
    {
        (None, "RUNNING"),
        ("RUNNING", "COMPLETED"),
        ("RUNNING", "FAILED"),
        ("RUNNING", "PAUSED"),
        ("RUNNING", "CANCELLED"),
        ("PAUSED", "RUNNING"),
        ("PAUSED", "CANCELLED"),
        ("PAUSED", "FAILED"),  # its deadline
    }
)
# Several steps of one transaction are one change of the row: READY may be left out.
NODE_ARROWS = frozenset(
    {(None, status) for status in ("PENDING", "READY", "ENQUEUED", "RUNNING")}
    | {("PENDING", status) for status in ("READY", "ENQUEUED", "RUNNING", "FAILED", "SKIPPED", "COMPLETED")}
    | {("READY", status) for status in ("ENQUEUED", "RUNNING", "FAILED", "SKIPPED")}
    | {("ENQUEUED", status) for status in ("RUNNING", "COMPLETED", "FAILED", "SKIPPED")}
    | {("RUNNING", status) for status in ("COMPLETED", "FAILED")}
)


def every_workflow_comes_to_rest(history: History) -> Iterator[Violation]:
    rule = "workflows come to rest"
    for started in history.started:
        if started.workflow_id not in history.flow_by_id:
            yield Violation(rule, f"{started.key} was started as {started.workflow_id} and is not there")
    roots = Counter(started.key for started in history.started)
    known = {started.workflow_id for started in history.started}
    for key, count in roots.items():
        if count > 1:
            yield Violation(rule, f"{key} was started {count} times")
    for flow in history.flows:
        if flow.parent_id is None and flow.id not in known:
            yield Violation(rule, f"{name(flow)} is there, and nobody has started it")
        if flow.status not in FLOW_TERMINAL:
            yield _about(history, rule, flow, f"is stuck in {flow.status}")
        for node in history.nodes_of[flow.id]:
            if node.status not in NODE_TERMINAL:
                text = f"{name(flow)}: node {node.node_id} is stuck in {node.status}, its task is {node.task_status}"
                yield Violation(rule, text, node.task_id)


def workflows_end_as_their_nodes_say(history: History) -> Iterator[Violation]:
    rule = "workflows end as their nodes say"
    asked = {control.workflow_id for control in history.controls if control.what == "cancel"}
    for flow in history.flows:
        own = [node for node in history.nodes_of[flow.id] if node.node_type != "ELEMENT"]
        if (problem := _wrong_end(flow, own)) is not None:
            yield _about(history, rule, flow, problem)
        if flow.status == "CANCELLED" and not asked & {flow.id, *_above(history, flow)}:
            yield _about(history, rule, flow, "is CANCELLED, and nobody asked for it")
    for control in history.controls:
        found = history.flow_by_id.get(control.workflow_id)
        if control.what == "cancel" and control.is_sure and found is not None and found.status not in FLOW_TERMINAL:
            yield _about(history, rule, found, f"was cancelled and is {found.status}")


def _wrong_end(flow: Flow, nodes: list[Node]) -> str | None:
    has_failed = any(node.status == "FAILED" for node in nodes)
    if flow.error_code == "WORKFLOW_EXPIRED":
        return None if flow.status == "FAILED" and flow.has_deadline else "has expired without a deadline"
    if flow.status == "COMPLETED" and has_failed:
        return "is COMPLETED, and a node has failed"
    if flow.status == "COMPLETED" and any(node.status == "SKIPPED" for node in nodes):
        return "is COMPLETED, and a node was skipped though none has failed"
    if flow.status == "FAILED" and not has_failed:
        return "is FAILED, and no node has"
    if flow.status == "FAILED" and flow.error_code not in {node.error_code for node in nodes}:
        return f"is FAILED with {flow.error_code}, which no node has said"
    return None


def _above(history: History, flow: Flow) -> Iterator[str]:
    parent = history.flow_by_id.get(flow.parent_id or "")
    while parent is not None:
        yield parent.id
        parent = history.flow_by_id.get(parent.parent_id or "")


def moves_of_workflows_and_nodes_are_arrows(history: History) -> Iterator[Violation]:
    rule = "legal moves of workflows"
    ends: dict[tuple[str, int | None], str] = {(flow.id, None): flow.status for flow in history.flows}
    ends |= {node.key: node.status for node in history.nodes}
    for (workflow_id, index), status in ends.items():
        before: str | None = None
        what = workflow_id if index is None else f"{workflow_id}, node {index}"
        for move in history.flow_moves_of.get((workflow_id, index), []):
            arrows = FLOW_ARROWS if index is None else NODE_ARROWS
            if (move.was, move.status) not in arrows:
                yield Violation(rule, f"{what}: {move.was} → {move.status} is no arrow")
            if move.was != before:
                yield Violation(rule, f"{what}: {move.was} → {move.status} does not follow {before}")
            before = move.status
        if before != status:
            yield Violation(rule, f"{what} is {status}, but its last move led to {before}")


def nothing_starts_in_a_paused_workflow(history: History) -> Iterator[Violation]:
    """Who was looking when it was paused may just start (L-25); who was stopped or cut off in between, later."""
    for flow in history.flows:
        moves = history.flow_moves_of.get((flow.id, None), [])
        pauses = [
            (move.at, after.at if after else float("inf"))
            for move, after in zip_longest(moves, moves[1:])
            if move.status == "PAUSED"
        ]
        for node in history.nodes_of[flow.id] if pauses else []:
            for start in history.moves_of.get(node.task_id or "", []):
                if start.status != "RUNNING":
                    continue
                for begin, end in pauses:
                    if begin + SLACK_S < start.at < end and not _was_held_up(history, start.owner, begin, start.at):
                        text = f"{name(flow)}: node {node.node_id} started {start.at - begin:.2f} s after the pause"
                        yield Violation("nothing starts in a paused workflow", text, node.task_id)


def _was_held_up(history: History, owner: str | None, begin: float, end: float) -> bool:
    worker = pid_of(owner or "")
    return any(
        (fault.is_of_server or fault.worker == worker) and fault.begin <= end and fault.end >= begin - SLACK_S
        for fault in history.faults
    ) or any(stall <= end and over >= begin for stall, over in history.stalls)


def name(flow: Flow) -> str:
    """For people."""
    return f"{flow.kind} {flow.id}"


def _about(history: History, rule: str, flow: Flow, text: str) -> Violation:
    tasks = [node.task_id for node in history.nodes_of[flow.id] if node.task_id is not None]
    return Violation(rule, f"{name(flow)} {text}", tasks[0] if tasks else None)
