"""Decides what the ends of some nodes mean for the others: their counters, which nodes may run now, which are skipped,
and what becomes of the workflow.

It works on plain values and does no I/O: the caller loads the nodes that `wanted` names, until there are none, and then
writes the changes. The decisions hold as long as nobody else changes these workflows, so the caller keeps their rows
locked during that time (F-71).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from horsies.core.store.workflows import Flow, FlowNode, Key
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.finish import SKIPPED, NodeEnd, error_of


class Readiness(Enum):
    """What becomes of a waiting node."""

    WAIT = auto()
    READY = auto()
    SKIP = auto()


def readiness(
    join: str,
    min_success: int | None,
    allow_failed_deps: bool,
    *,
    total: int,
    completed: int,
    failed: int,
    skipped: int,
) -> Readiness:
    """May a node run? The counters over its dependencies decide it (F-30): there are `total` of them, of which so many
    have ended one way or the other."""
    if total == 0:
        return Readiness.READY
    unsuccessful = failed + skipped
    if join == "all":
        if completed == total or (allow_failed_deps and completed + unsuccessful == total):
            return Readiness.READY
        return Readiness.SKIP if unsuccessful and not allow_failed_deps else Readiness.WAIT
    needed = 1 if join == "any" else min_success or total
    if completed >= needed:
        return Readiness.READY
    return Readiness.SKIP if total - unsuccessful < needed else Readiness.WAIT


@dataclass(slots=True)
class FlowState:
    """A workflow with the changes that will be written."""

    row: Flow
    status: WorkflowStatus = field(init=False)
    open_nodes: int = field(init=False)
    error: str | None = None  # the first failure, if the row has none yet
    error_code: str | None = None
    result: str | None = None
    opened: bool = False  # a retry has cleared what its end had left (F-94)

    def __post_init__(self) -> None:
        self.status, self.open_nodes = self.row.status, self.row.open_nodes

    @property
    def is_running(self) -> bool:
        return self.status is WorkflowStatus.RUNNING

    @property
    def is_changed(self) -> bool:
        before = (self.row.status, self.row.open_nodes)
        return before != (self.status, self.open_nodes) or self.error is not None or self.opened


@dataclass(slots=True)
class NodeState:
    """A node with the changes that will be written."""

    row: FlowNode
    status: WorkflowTaskStatus = field(init=False)
    completed: int = 0  # by how much its counters grow
    failed: int = 0
    skipped: int = 0
    end: NodeEnd | None = None
    task_id: str | None = None
    child_id: str | None = None
    map_options: str | None = None
    opened: bool = False

    def __post_init__(self) -> None:
        self.status = self.row.status

    @property
    def is_changed(self) -> bool:
        return self.status is not self.row.status or bool(self.completed or self.failed or self.skipped) or self.opened

    def readiness(self) -> Readiness:
        row = self.row
        return readiness(
            "all" if row.node_type == "MAP" else row.join,
            row.min_success,
            row.allow_failed_deps,
            total=row.total,
            completed=row.completed + self.completed,
            failed=row.failed + self.failed,
            skipped=row.skipped + self.skipped,
        )

    @property
    def has_all_elements(self) -> bool:
        """For a running map: whether all its elements have ended."""
        row = self.row
        ended = row.completed + row.failed + row.skipped + self.completed + self.failed + self.skipped
        return ended == row.total


class _Effect(NamedTuple):
    """What the end or the reopening of a node means for a node that counts it."""

    key: Key
    status: WorkflowTaskStatus
    by: int
    of_element: bool = False


class Settling:
    """`end` some nodes, `add` what is `wanted`, and read the outcome for all of them."""

    def __init__(self, flows: Iterable[Flow]) -> None:
        self.flows = {flow.id: FlowState(flow) for flow in flows}
        self.nodes: dict[Key, NodeState] = {}
        self.ready: dict[Key, None] = {}  # in the order in which they became READY
        self.maps: dict[Key, None] = {}  # maps whose elements have all ended; their results must be put together
        self.freed: set[str] = set()  # workflows with a map that has a free place
        self._effects: deque[_Effect] = deque()

    def add(self, nodes: Iterable[FlowNode]) -> None:
        """Add loaded nodes. A node that is already known keeps its changes."""
        for node in nodes:
            if node.workflow_id in self.flows:
                self.nodes.setdefault(node.key, NodeState(node))

    def wanted(self) -> list[Key]:
        """The nodes whose counters must change and that are not loaded yet."""
        return list(dict.fromkeys(effect.key for effect in self._effects if effect.key not in self.nodes))

    def end(self, key: Key, end: NodeEnd) -> bool:
        """The node has ended in this way; False if it had ended before."""
        node, flow = self.nodes[key], self.flows[key[0]]
        if node.status.is_terminal:
            return False
        self.ready.pop(key, None)
        node.status, node.end = end.status, end
        if node.row.node_type != "ELEMENT":
            flow.open_nodes -= 1
            if end.status is WorkflowTaskStatus.FAILED:
                self._failed(flow, end)
        self._tell(node, end.status, 1)
        return True

    def open_again(self, key: Key, status: WorkflowTaskStatus) -> None:
        """An ended node is open again (F-94): its end is no longer counted."""
        node, flow = self.nodes[key], self.flows[key[0]]
        was, node.status, node.opened = node.status, status, True
        if node.row.node_type != "ELEMENT":
            flow.open_nodes += 1
        if node.row.node_type == "ELEMENT":
            self.freed.add(key[0])  # there may be a free place
        elif status is WorkflowTaskStatus.READY:
            self.ready[key] = None
        self._tell(node, was, -1)

    def run(self) -> None:
        """Apply every end, as far as nodes are known."""
        for _ in range(len(self._effects)):
            effect = self._effects.popleft()
            if effect.key in self.nodes:
                self._count(effect)
            else:
                self._effects.append(effect)

    @property
    def is_settled(self) -> bool:
        return not self._effects

    def evaluate(self, key: Key) -> None:
        """A waiting node in a running workflow: whether it may continue, or is skipped."""
        node = self.nodes[key]
        if node.status is not WorkflowTaskStatus.PENDING or not self.flows[key[0]].is_running:
            return
        match node.readiness():
            case Readiness.READY:
                node.status = WorkflowTaskStatus.READY
                self.ready[key] = None
            case Readiness.SKIP:
                self.end(key, SKIPPED)
            case Readiness.WAIT:
                pass

    def changed(self) -> Iterator[tuple[Key, NodeState]]:
        return ((key, node) for key, node in self.nodes.items() if node.is_changed)

    def _tell(self, node: NodeState, status: WorkflowTaskStatus, by: int) -> None:
        row = node.row
        if row.node_type == "ELEMENT":
            if row.map_index is not None:
                self._effects.append(_Effect((row.workflow_id, row.map_index), status, by, of_element=True))
            return
        for dependent in row.dependents:
            self._effects.append(_Effect((row.workflow_id, dependent), status, by))

    def _count(self, effect: _Effect) -> None:
        node, by = self.nodes[effect.key], effect.by
        is_expanded = node.row.has_elements or node.map_options is not None
        if node.row.node_type == "MAP" and is_expanded is not effect.of_element:
            return  # it does not count its dependencies any more
        match effect.status:
            case WorkflowTaskStatus.COMPLETED:
                node.completed += by
            case WorkflowTaskStatus.FAILED:
                node.failed += by
            case _:
                node.skipped += by
        if by < 0:
            if node.status is WorkflowTaskStatus.READY and not effect.of_element and not node.opened:
                # Nothing has been started for this node yet, so it waits again for the dependencies that were reopened.
                node.status = WorkflowTaskStatus.PENDING
                self.ready.pop(effect.key, None)
            return
        if effect.of_element:
            if node.row.max_parallel is not None:
                self.freed.add(node.row.workflow_id)
            if node.status is WorkflowTaskStatus.RUNNING and node.has_all_elements:
                self.maps[effect.key] = None
            return
        self.evaluate(effect.key)

    def _failed(self, flow: FlowState, end: NodeEnd) -> None:
        """The first failure is kept; with `PAUSE` it pauses the workflow at once (F-40, F-41)."""
        if flow.status.is_terminal:
            return
        if (flow.opened or not flow.row.has_error) and flow.error is None:
            flow.error, flow.error_code = error_of(end.result), end.error_code
        if flow.row.on_error == "PAUSE" and flow.is_running:
            flow.status = WorkflowStatus.PAUSED
