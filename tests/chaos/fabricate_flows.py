"""Hand-made workflows for the tests of the checker: nodes with the tasks, counters and moves that real ones leave."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from tests.chaos.fabricate import W2, Tale
from tests.chaos.flow_history import FLOW_TERMINAL, NODE_TERMINAL, Flow, FlowMove, Node, Started
from tests.chaos.history import History

CHILD = 333  # in which they ran
PATHS = {
    "COMPLETED": ("ENQUEUED", "RUNNING", "COMPLETED"),
    "FAILED": ("ENQUEUED", "RUNNING", "FAILED"),
    "SKIPPED": ("SKIPPED",),
    "RUNNING": ("ENQUEUED", "RUNNING"),
    "ENQUEUED": ("ENQUEUED",),
    "READY": ("READY",),
    "PENDING": (),
}


class FlowTale:
    """One workflow: `add` its nodes, each with the task it had, in the order in which they ran; `end` it."""

    def __init__(self, history: History, key: str, kind: str = "fan", **facts: Any) -> None:
        self.history, self.key = history, key
        self.id = f"wf-{key}"
        self.flow = Flow(self.id, kind, "RUNNING", **facts)
        self.nodes: list[Node] = []
        self._clock = 1.0
        if self.flow.parent_id is None:
            history.started.append(Started(key, self.id, 1.0))
        self.note(None, None, "RUNNING")

    def note(self, index: int | None, was: str | None, status: str, at: float = 1.0) -> None:
        number = len(self.history.flow_moves) + 1
        self.history.flow_moves.append(FlowMove(number, self.id, index, at, was, status))

    def add(self, status: str, *after: int, task: str | None = None, **facts: Any) -> FlowTale:
        """A node in its last state, after these; with a task unless it was skipped or is none."""
        index = len(self.nodes)
        node = Node(self.id, index, f"n{index}", status, dependencies=after, **{"total": len(after), **facts})
        for source in after:
            known = self.nodes[source]
            self.nodes[source] = replace(known, dependents=(*known.dependents, index))
        if task or (status not in ("SKIPPED", "PENDING", "READY") and node.node_type in ("TASK", "ELEMENT")):
            node = self._with_task(node, task or status)
        before = None
        for step in ("PENDING", *PATHS[status]) if after else PATHS[status] or ("PENDING",):
            self.note(index, before, step, self._clock)
            before = step
        if before != status:
            self.note(index, before, status, self._clock)
        self.nodes.append(node)
        return self

    def end(self, status: str, **facts: Any) -> FlowTale:
        """With counters and `open_nodes` that are the truth, unless told otherwise."""
        own = [node for node in self.nodes if node.node_type != "ELEMENT"]
        known = {"status": status, "open_nodes": sum(node.status not in NODE_TERMINAL for node in own)}
        if status == "FAILED":
            known["error_code"] = next((node.error_code for node in own if node.status == "FAILED"), None)
        if status in FLOW_TERMINAL or status == "PAUSED":
            self.note(None, "RUNNING", status, self._clock + 0.5)
        self.flow = replace(self.flow, **{**known, **facts})
        self.nodes = [self._counted(node) for node in self.nodes]
        self.history.flows.append(self.flow)
        self.history.nodes.extend(self.nodes)
        return self

    def change(self, index: int, **facts: Any) -> None:
        """One of its nodes, after the end, is found otherwise."""
        place = self.history.nodes.index(self.nodes[index])
        self.nodes[index] = self.history.nodes[place] = replace(self.nodes[index], **facts)

    def _counted(self, node: Node) -> Node:
        counted = [other for other in self.nodes if other.map_index == node.index] or [
            self.nodes[index] for index in node.dependencies
        ]
        truth = Counter(other.status for other in counted)
        counts = (truth["COMPLETED"], truth["FAILED"], truth["SKIPPED"])
        return replace(node, total=len(counted), counts=counts)

    def _with_task(self, node: Node, ended: str) -> Node:
        key = f"{self.key}/{node.node_id}"
        begin, self._clock = self._clock, self._clock + 1.0
        facts: dict[str, Any] = {"workflow_id": self.id, "max_retries": 0, "retried_codes": frozenset()}
        tale = Tale(self.history, key, "step", sent=begin, **facts)
        self.history.sent.pop()  # nobody has sent it but the engine
        token = f"{key}!"
        if ended == "COMPLETED":
            tale.start(begin + 0.1, W2, CHILD).run(begin + 0.2, begin + 0.3, token=token)
            tale.end(begin + 0.4, "COMPLETED", "COMPLETED", token=token)
        elif ended == "FAILED":
            tale.start(begin + 0.1, W2, CHILD).run(begin + 0.2, begin + 0.3, "segv")
            tale.end(begin + 0.4, "FAILED", "WORKER_FAILURE", "WORKER_CRASHED")
        elif ended == "CANCELLED":
            tale.move(begin + 0.4, "CANCELLED")
        elif ended == "RUNNING":
            tale.start(begin + 0.1, W2, CHILD)
        result: Any = {"ok": token} if ended == "COMPLETED" else {"err": {"error_code": "WORKER_CRASHED"}}
        code = {"FAILED": "WORKER_CRASHED"}.get(node.status)
        facts = {"task_id": tale.id, "task_status": tale.last.status, "kwargs": {"key": key}}
        if node.status in ("COMPLETED", "FAILED"):
            facts |= {"result": result, "task_result": result, "error_code": code}
        return replace(node, **facts)


def joined(history: History, key: str = "joined") -> FlowTale:
    """One, two, and one after both, all completed."""
    tale = FlowTale(history, key).add("COMPLETED").add("COMPLETED", 0).add("COMPLETED", 0).add("COMPLETED", 1, 2)
    return tale.end("COMPLETED")


def failed(history: History, key: str = "failed") -> FlowTale:
    """The first failed, so the second was skipped."""
    return FlowTale(history, key, "chain").add("FAILED").add("SKIPPED", 0).end("FAILED")


def mapped(history: History, key: str = "mapped", most: int | None = 2) -> FlowTale:
    """A list, and a map of two over it."""
    tale = FlowTale(history, key, "map").add("COMPLETED")
    tale.add("RUNNING", 0, node_type="MAP", max_parallel=most)
    for position in range(2):
        tale.add("COMPLETED", node_type="ELEMENT", map_index=1, map_position=position)
    tale.nodes[1] = replace(tale.nodes[1], status="COMPLETED", result={"ok": [node.result for node in tale.nodes[2:]]})
    tale.note(1, "RUNNING", "COMPLETED", 9.0)
    return tale.end("COMPLETED")


def nested(history: History, key: str = "nested") -> tuple[FlowTale, FlowTale]:
    """A child of one node, and its parent."""
    child = FlowTale(history, f"{key}-child", "branch", parent_id=f"wf-{key}", parent_index=0)
    child.add("COMPLETED").end("COMPLETED")
    parent = FlowTale(history, key, "nested")
    parent.add("COMPLETED", node_type="SUBWORKFLOW", child_id=child.id).end("COMPLETED")
    return parent, child
