"""One workflow with its nodes, as the rules F tell it: pure, without SQL, database or clock.

Nothing here is fast: a node's counters, a workflow's open nodes and who is next are counted anew whenever somebody
asks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from horsies.core.models.workflow.plan import NodePlan, WorkflowPlan
from tests.proof_workflows.rules import ANYTHING, ENDED, OVER, TASK_ENDED, Made, code_of, verdict

if TYPE_CHECKING:
    from tests.proof_workflows.model import World

LOAD_FAILED = Made(("SUBWORKFLOW_LOAD_FAILED",))
NOT_ENQUEUED = Made(("WORKFLOW_ENQUEUE_FAILED",))
ANY_CODE = "any"
NO_RESULT = {
    "FAILED": Made(("WORKER_CRASHED",)),
    "CANCELLED": Made(("TASK_CANCELLED",)),
    "COMPLETED": Made(("RESULT_NOT_AVAILABLE",)),
    "EXPIRED": Made(("TASK_EXPIRED",)),
}


@dataclass(eq=False)
class Task:
    """A row of horsies_tasks that belongs to a node."""

    node: Node
    kwargs: dict[str, Any]
    status: str = "PENDING"
    result: Any = None
    id: str | None = None  # once it has been seen
    seq: int = 0
    since: int = 0  # the step

    @property
    def is_ended(self) -> bool:
        return self.status in TASK_ENDED


@dataclass(eq=False)
class Node:
    """A row of horsies_workflow_tasks. An element of a map has the plan of its map, and a position."""

    workflow: Workflow
    plan: NodePlan
    index: int
    status: str = "PENDING"
    result: Any = None
    ended_at: int = 0  # the step
    task: Task | None = None
    former: list[Task] = field(default_factory=list)
    child: Workflow | None = None
    former_children: list[Workflow] = field(default_factory=list)
    elements: list[Node] = field(default_factory=list)
    map: Node | None = None
    position: int | None = None
    value: Any = None
    injected: dict[str, Any] | None = None  # into `build_with`
    summary: Any = None  # of its child, when that ended
    is_left: bool = False  # READY, and left to a later step

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    @property
    def kind(self) -> str:
        return self.plan.node_type if self.map is None else "ELEMENT"

    @property
    def name(self) -> str:
        return self.plan.node_id if self.map is None else f"{self.plan.node_id}[{self.position}]"

    def end(self, status: str, result: Any) -> None:
        self.status, self.result, self.ended_at = status, result, self.workflow.world.step

    def delivered(self) -> Any:
        """What dependents get (F-34)."""
        if self.status == "SKIPPED":
            return Made(("UPSTREAM_SKIPPED",), (("dependency_index", self.index),) if self.map is None else ())
        return self.result


@dataclass(eq=False)
class Workflow:
    """A row of horsies_workflows with its nodes."""

    world: World
    plan: WorkflowPlan
    parent: Node | None = None
    status: str = "RUNNING"
    nodes: list[Node] = field(default_factory=list)
    result: Any = None
    codes: set[str] = field(default_factory=set)  # of its error: one of these
    was_retried: bool = False  # what failed first, then, is forgotten
    has_deadline: bool = False
    is_late: bool = False
    id: str | None = None

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.workflow.depth + 1

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    @property
    def open_nodes(self) -> int:
        return sum(not node.is_ended for node in self.nodes)

    def all_nodes(self) -> Iterator[Node]:
        for node in self.nodes:
            yield node
            yield from node.elements

    def children(self) -> Iterator[Workflow]:
        return (node.child for node in self.nodes if node.child is not None)

    def dependencies(self, node: Node) -> list[str]:
        return [self.nodes[index].status for index in node.plan.dependencies]

    # Going on

    def go_on(self) -> None:
        """Whatever is READY is enqueued."""
        for node in self.all_nodes():
            node.is_left = False
        for node in self.nodes:
            if self.status == "RUNNING" and node.status == "RUNNING" and node.elements:
                self._top_up(node)
        self.resolve()

    def leave(self) -> None:
        """To a later step."""
        for node in self.all_nodes():
            node.is_left = node.status == "READY"

    def resolve(self) -> None:
        """F-70 after ends have been taken: the joins, again and again as skips cascade; then F-75."""
        if self.is_late:
            self._drop_what_waits()
        while self.status == "RUNNING" and self._step():
            pass
        is_done = not self.open_nodes and not self.is_over
        if is_done and (self.status == "RUNNING" or self.is_late):
            self._finalize()

    def _step(self) -> bool:
        """Is there something that changes?"""
        before = self._marks()
        for node in self.nodes:
            self._evaluate(node)
            if node.status == "READY" and node.plan.node_type != "SUBWORKFLOW" and not node.is_left:
                self._enqueue(node)
        return before != self._marks()

    def _evaluate(self, node: Node) -> None:
        plan = node.plan
        if node.status != "PENDING":
            return
        found = verdict(plan.join, plan.min_success, plan.allow_failed_deps, self.dependencies(node))
        if plan.node_type == "MAP":  # its `min_success` is about elements
            found = verdict("all", None, plan.allow_failed_deps, self.dependencies(node))
        if found == "SKIPPED":
            node.end("SKIPPED", None)
        elif found == "READY":
            node.status = "READY"

    def _marks(self) -> list[str]:
        return [node.status for node in self.all_nodes()] + [self.status]

    def _enqueue(self, node: Node) -> None:
        """F-72, F-95."""
        if node.plan.node_type == "TASK":
            node.task, node.status = Task(node, self._inputs(node), since=self.world.step), "ENQUEUED"
            return
        self._unfold(node)
        if node.status == "FAILED":
            self.on_failure()

    def create_child(self, node: Node) -> None:
        """F-60, F-64."""
        plan = self.world.build(node.plan.sub_workflow_key or "")
        node.injected = self._inputs(node)
        if plan is None:
            node.end("FAILED", LOAD_FAILED)
            self.on_failure()
            return
        node.status = "RUNNING"
        node.child = Workflow(self.world, plan, node, has_deadline=self.has_deadline, is_late=self.is_late)
        node.child.begin()

    def _unfold(self, node: Node) -> None:
        options = node.plan.map_options
        assert options is not None
        source = self.nodes[options.over].delivered()
        values = source.get("ok") if isinstance(source, dict) else None
        if not isinstance(values, list):
            node.end("FAILED", NOT_ENQUEUED)
            return
        first = 1 + max(node.index for node in self.all_nodes())
        node.elements = [
            Node(self, node.plan, first + n, "READY", map=node, position=n, value=value)
            for n, value in enumerate(values)
        ]
        node.status = "RUNNING"
        self._top_up(node)
        self.close_map(node)

    def _top_up(self, node: Node) -> None:
        options = node.plan.map_options
        assert options is not None
        for element in node.elements:
            busy = sum(one.status in ("ENQUEUED", "RUNNING") for one in node.elements)
            if element.status == "READY" and (options.max_parallel is None or busy < options.max_parallel):
                kwargs = {**self._inputs(node, element), options.param: element.value}
                element.task, element.status = Task(element, kwargs, since=self.world.step), "ENQUEUED"

    def close_maps(self) -> None:
        for node in self.nodes:
            if node.elements:
                self.close_map(node)

    def close_map(self, node: Node) -> None:
        """F-95: all its elements have ended."""
        if node.status != "RUNNING" or not all(element.is_ended for element in node.elements):
            return
        won = sum(element.status == "COMPLETED" for element in node.elements)
        wanted = len(node.elements) if node.plan.min_success is None else node.plan.min_success
        if won >= wanted or not node.elements:
            node.end("COMPLETED", {"ok": [element.delivered() for element in node.elements]})
        else:
            node.end("FAILED", Made(()))
            self.on_failure()

    def on_failure(self) -> None:
        """F-41."""
        if self.plan.on_error == "PAUSE" and self.status == "RUNNING":
            self.pause()

    def begin(self) -> None:
        """F-80: what waits for nothing is enqueued at once, child workflows too."""
        self.nodes = [Node(self, plan, index) for index, plan in enumerate(self.plan.nodes)]
        self.resolve()
        for index in self.plan.children:
            self.create_child(self.nodes[index])

    def _injected(self, node: Node) -> dict[str, Any]:
        """F-33 to F-35."""
        sources = {param: self.nodes[index] for param, index in node.plan.args_from.items()}
        return {param: source.delivered() for param, source in sources.items() if source.is_ended}

    def _inputs(self, node: Node, element: Node | None = None) -> dict[str, Any]:
        given: dict[str, Any] = {**json.loads(node.plan.kwargs_json or "{}"), **self._injected(node)}
        index = node.index if element is None else ANYTHING  # several maps may unfold in any order
        who = {"task_index": index, "task_name": node.plan.task_name, "workflow_id": ANYTHING}
        if node.plan.ctx_from is not None:
            sources = [self.nodes[index] for index in node.plan.ctx_from if self.nodes[index].is_ended]
            results = {source.plan.node_id: source.delivered() for source in sources}
            summaries = {source.plan.node_id: source.summary for source in sources if source.summary}
            given["workflow_ctx"] = {**who, "results": results, "summaries": summaries}
        if node.plan.wants_meta:
            given["workflow_meta"] = who
        return given

    def _finalize(self) -> None:
        """F-75, F-42, F-43, F-96."""
        failed = [node for node in self.nodes if node.status == "FAILED"]
        policy = self.plan.success_policy
        if self.is_late:
            self.status, self.codes = "FAILED", {"WORKFLOW_EXPIRED"}
        elif policy is None:
            self.status = "FAILED" if failed else "COMPLETED"
            self.codes = first_codes(failed, is_any=self.was_retried)
        elif any(all(self.nodes[index].status == "COMPLETED" for index in case) for case in policy["cases"]):
            self.status = "COMPLETED"
        else:
            required = {index for case in policy["cases"] for index in case}
            codes = first_codes([node for node in failed if node.index in required])
            self.status, self.codes = "FAILED", codes or {"WORKFLOW_SUCCESS_CASE_NOT_MET"}
        output = None if self.plan.output_index is None else self.nodes[self.plan.output_index]
        self.result = output.result if output is not None and output.status == "COMPLETED" else {"ok": None}
        if self.parent is not None:
            self.world.ended_children.append(self)

    # What operators and time do

    def pause(self) -> None:
        """F-51."""
        for one in self._tree():
            if one.status == "RUNNING":
                one.status = "PAUSED"

    def resume(self) -> None:
        """F-52."""
        tree = self._tree()
        for one in tree:
            if one.status == "PAUSED":
                one.status = "RUNNING"
        self._open(tree)

    def _tree(self) -> list[Workflow]:
        """It and the unfinished ones below it, level by level."""
        found, level = [self], [self]
        while level:
            level = [child for one in level for child in one.children() if not child.is_over]
            if self.world.goes_by_id:
                level.sort(key=lambda one: one.id or "")
            found += level
        return found

    def _open(self, tree: list[Workflow]) -> None:
        """What waits in them is judged again in one step; the next steps enqueue it, each for one of them."""
        for one in tree:
            for node in one.nodes:  # each comes after what it waits for
                one._evaluate(node)
            one.leave()
        self.world.opened += tree

    def cancel(self) -> None:
        """F-53."""
        self.status = "CANCELLED"
        for child in list(self.children()):
            if not child.is_over:
                child.cancel()
        self._drop_what_waits()
        if self.parent is not None:
            self.world.ended_children.append(self)

    def _drop_what_waits(self) -> None:
        for node in self.all_nodes():
            is_waiting = node.task is not None and node.task.status in ("PENDING", "CLAIMED")
            if node.task is not None and is_waiting:
                node.task.status, node.task.result = "CANCELLED", NO_RESULT["CANCELLED"]
            if node.status in ("PENDING", "READY", "ENQUEUED"):
                node.end("SKIPPED", None)
            elif node.status == "RUNNING" and is_waiting:
                node.end("FAILED", NO_RESULT["CANCELLED"])
        self.close_maps()

    def retry(self, names: Collection[str] | None) -> bool:
        """F-94."""
        is_taken = self.parent is not None and (self.parent.is_ended or self.parent.child is not self)
        failed = [node for node in self.nodes if node.status == "FAILED" and (names is None or node.name in names)]
        if self.status not in ("RUNNING", "PAUSED", "FAILED") or self.is_late or is_taken:
            return False
        if not failed or (names is not None and len(failed) < len(names)):
            return False
        for node in failed:
            self._reset(node)
        opened = {node.index for node in failed}
        reached = set(opened)
        for node in self.nodes:  # each comes after what it waits for
            if reached.intersection(node.plan.dependencies):
                reached.add(node.index)
                if node.status == "SKIPPED":
                    node.status = "PENDING"
                    opened.add(node.index)
            if node.status == "READY" and opened.intersection(node.plan.dependencies):
                node.status = "PENDING"  # what it had waited for runs again
        self.result, self.codes, self.was_retried = None, set(), True
        if self.status == "PAUSED":
            self.resume()
        else:
            self.status = "RUNNING"
            self._open([self])
        return True

    def _reset(self, node: Node) -> None:
        node.result = node.summary = None
        if node.elements:
            node.status = "RUNNING"
            for element in node.elements:
                if element.status == "FAILED":
                    self._reset(element)
            return
        node.status = "READY"
        if node.task is not None:
            node.former.append(node.task)
        if node.child is not None:
            node.former_children.append(node.child)
        node.task = node.child = None


def first_codes(failed: list[Node], *, is_any: bool = False) -> set[str]:
    """The codes of those that failed first (several may have been told in one go), or of any."""
    first = min((node.ended_at for node in failed), default=0)
    return {code_of(node.result) or ANY_CODE for node in failed if is_any or node.ended_at == first}


def summary(child: Workflow) -> Any:
    """F-63. A cancelled one may have been told of before what runs in it has ended."""
    statuses = [node.status for node in child.nodes]
    counts: dict[str, Any] = {f"{status.lower()}_tasks": statuses.count(status) for status in ENDED}
    if child.status == "CANCELLED":
        counts = dict.fromkeys(counts, ANYTHING)
    return {
        "status": child.status,
        "total_tasks": len(child.nodes),
        **counts,
        "output": ANYTHING,
        "error_summary": ANYTHING,
    }
