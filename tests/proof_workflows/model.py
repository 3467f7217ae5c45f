"""All workflows, and what happens to them: tasks are claimed, started and end (02), their ends are told to the engine
(`advance`), operators and time have their way. `World` is what should be stored; it can be copied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from horsies.core.models.workflow.plan import WorkflowPlan
from tests.proof_workflows.rules import Made, Perhaps
from tests.proof_workflows.workflow import NO_RESULT, Node, Task, Workflow, summary


class World:
    """All workflows."""

    def __init__(self, build: Callable[[str], WorkflowPlan | None]) -> None:
        self.build = build
        self.step = 0
        self.roots: list[Workflow] = []
        # What is left to do after a step: parents are to be told of these, and these have READY nodes to be enqueued.
        self.ended_children: list[Workflow] = []
        self.opened: list[Workflow] = []
        # Within one step the rules leave open what comes first, the end of a map by its last elements or what other
        # ends lead to; whether ends that are told together are taken in one step or, in their order, in several; and
        # in which order children are built or resumed, of which the first that fails may pause those that would follow.
        self.closes_late = self.splits = self.goes_by_id = False
        # Whoever makes these steps may die after any of them; `is_stopped` until others take up what was left.
        self.stops_after: int | None = None
        self.is_stopped = False

    def copy(self) -> World:
        """Plans are shared: they never change."""
        plans = [one.plan for one in self.workflows()]
        shared: dict[int, Any] = {id(one): one for plan in plans for one in (plan, *plan.nodes)}
        shared[id(self.build)] = self.build
        return copy.deepcopy(self, shared)

    def workflows(self) -> Iterator[Workflow]:
        """All of them, parents first."""
        waiting = list(self.roots)
        while waiting:
            one = waiting.pop(0)
            yield one
            waiting += [c for node in one.nodes for c in (*node.former_children, node.child) if c is not None]

    def nodes(self) -> Iterator[Node]:
        return (node for workflow in self.workflows() for node in workflow.all_nodes())

    def tasks(self) -> Iterator[Task]:
        return (task for node in self.nodes() for task in (*node.former, node.task) if task is not None)

    # Tasks

    def begin(self, plan: WorkflowPlan, *, has_deadline: bool = False) -> Workflow:
        workflow = Workflow(self, plan, has_deadline=has_deadline)
        self.roots.append(workflow)
        workflow.begin()
        self._follow()
        return workflow

    def claimable(self) -> list[Task]:
        """W-20."""
        return [task for task in self.tasks() if task.status == "PENDING" and task.node.workflow.status == "RUNNING"]

    def start(self, task: Task) -> bool:
        """L-25, L-09. Is it RUNNING now?"""
        if task.node.workflow.status == "PAUSED":
            task.status = "PENDING"
            return False
        task.status = "RUNNING"
        if task is task.node.task and task.node.status == "ENQUEUED":
            task.node.status = "RUNNING"
        return True

    def end(self, task: Task, status: str, result: Any) -> None:
        task.status, task.result = status, result

    # The engine

    def advance(self, tasks: Sequence[Task]) -> None:
        """F-70 for tasks that have ended; all of one workflow in one transaction."""
        self._take(tasks)
        self._follow()

    def _take(self, tasks: Sequence[Task]) -> None:
        own = [task for task in tasks if task is task.node.task]
        if self.splits and len({id(task.node.workflow) for task in own}) > 1 and self._would_pause(own):
            self._take(tasks[: len(tasks) // 2])
            if not self._must_stop():
                self._take(tasks[len(tasks) // 2 :])
            return
        ended = [task for task in own if task.is_ended and not task.node.is_ended]
        for task in ended:
            self._take_end(task)
        for workflow in {id(task.node.workflow): task.node.workflow for task in ended}.values():
            if not self.closes_late:
                workflow.close_maps()
            workflow.resolve()
            workflow.close_maps()
            workflow.resolve()
        self.opened += [task.node.workflow for task in ended if _frees_a_place(task.node)]

    def _would_pause(self, tasks: Sequence[Task]) -> bool:
        """Whether taking these ends together pauses a workflow: with its children, it has a step to itself."""
        other, ids = self.copy(), {task.id for task in tasks}
        running = {workflow.id for workflow in other.workflows() if workflow.status == "RUNNING"}
        other.splits = False
        other._take([task for task in other.tasks() if task.id in ids])
        return any(workflow.status == "PAUSED" and workflow.id in running for workflow in other.workflows())

    def _take_end(self, task: Task) -> None:
        node, result = task.node, task.result
        if result is None:
            result = NO_RESULT[task.status]
        is_ok = task.status == "COMPLETED" and isinstance(result, dict) and "ok" in result
        node.end("COMPLETED" if is_ok else "FAILED", result)
        if not is_ok and node.map is None:
            node.workflow.on_failure()

    def _follow(self) -> None:
        """What comes after a step, each in a transaction of its own: parents are told of the ends of their children
        (F-62), child workflows are built, and what was opened goes on, from the top down (F-52)."""
        while self.ended_children or self.opened or self._to_build():
            if self._must_stop():
                return
            if self.ended_children:
                self._tell_parents()
            elif node := self._to_build():
                node.workflow.create_child(node)
                node.workflow.resolve()
            else:
                self.opened.pop(0).go_on()

    def _must_stop(self) -> bool:
        """What is left to do then is forgotten: nodes that are READY stay so, and parents are not told."""
        if self.stops_after is not None:
            self.stops_after -= 1
            if self.stops_after < 0:
                self.stops_after, self.is_stopped = None, True
                self.ended_children, self.opened = [], []
                for workflow in self.workflows():
                    workflow.leave()
        return self.is_stopped

    def _tell_parents(self) -> None:
        count = 1 if self.splits else len(self.ended_children)
        told, self.ended_children = self.ended_children[:count], self.ended_children[count:]
        parents = {id(node.workflow): node.workflow for child in told if (node := self._take_child(child))}
        for parent in parents.values():
            parent.resolve()

    def _to_build(self) -> Node | None:
        known = list(self.workflows())
        for workflow in sorted(known, key=lambda one: one.id or "") if self.goes_by_id else known:
            for node in workflow.nodes if workflow.status == "RUNNING" else ():
                if node.status == "READY" and node.plan.node_type == "SUBWORKFLOW" and not node.is_left:
                    return node
        return None

    def _take_child(self, child: Workflow) -> Node | None:
        """The node that has ended with it."""
        node = child.parent
        if node is None or node.child is not child or node.is_ended or not child.is_over:
            return None
        node.summary = summary(child)
        if child.status == "COMPLETED":
            node.end("COMPLETED", child.result)
        else:
            node.end("FAILED", Made(("SUBWORKFLOW_FAILED" if child.status == "FAILED" else "WORKFLOW_CANCELLED",)))
            node.workflow.on_failure()
        return node

    def reconcile(self) -> None:
        """R-30 to R-36: whatever has ended and was not told, then what is READY, then what has nothing left to do."""
        self.is_stopped = False
        for task in self.tasks():
            if task.status == "PENDING" and task.node.workflow.is_over:
                task.status, task.result = "CANCELLED", NO_RESULT["CANCELLED"]
        ended = [task for task in self.tasks() if task.is_ended and not task.node.is_ended]
        self.advance(sorted(ended, key=lambda task: _place(task.node)))
        ends = [node for node in self.nodes() if node.child is not None and node.child.is_over and not node.is_ended]
        if not self.is_stopped:
            self.ended_children = [node.child for node in sorted(ends, key=_place) if node.child is not None]
            self._follow()
        for is_due in (_waits, _has_no_open_node, _waits_in_a_map):
            if not self.is_stopped:
                due = [workflow for workflow in self.workflows() if workflow.status == "RUNNING" and is_due(workflow)]
                self.opened = sorted(due, key=lambda workflow: workflow.id or "")
                self._follow()

    def leave_open(self) -> None:
        """What has ended in the very step in which an `any` or `quorum` was enqueued may have come too late for it."""
        for task in self.tasks():
            plan, nodes = task.node.plan, task.node.workflow.nodes
            if task.since != self.step or plan.join == "all" or task.node.map is not None:
                continue
            late = {index for index in plan.dependencies if nodes[index].ended_at == self.step}
            task.kwargs |= {p: Perhaps(nodes[i].delivered()) for p, i in plan.args_from.items() if i in late}
            if plan.ctx_from is not None:
                names = {nodes[index].name: nodes[index] for index in plan.ctx_from if index in late}
                context = task.kwargs["workflow_ctx"]
                context["results"] |= {name: Perhaps(node.delivered()) for name, node in names.items()}
                context["summaries"] |= {name: Perhaps(node.summary) for name, node in names.items() if node.summary}

    # Operators and time

    def pause(self, workflow: Workflow) -> bool:
        if workflow.status != "RUNNING":
            return False
        workflow.pause()
        return True

    def resume(self, workflow: Workflow) -> bool:
        if workflow.status != "PAUSED":
            return False
        workflow.resume()
        self._follow()
        return True

    def cancel(self, workflow: Workflow) -> bool:
        if workflow.is_over:
            return False
        workflow.cancel()
        self._follow()
        return True

    def retry(self, workflow: Workflow, names: Collection[str] | None) -> bool:
        is_done = workflow.retry(names)
        self._follow()
        return is_done

    def expire(self, root: Workflow) -> None:
        """F-96: the deadline of a whole tree passes, and that is noticed everywhere."""
        tree = [one for one in self.workflows() if one is root or top_of(one) is root]
        for workflow in tree:
            if not workflow.is_over:
                workflow.is_late = True
                workflow.resolve()
        self._follow()


def _place(node: Node) -> tuple[str, int]:
    return node.workflow.id or "", node.index


def _frees_a_place(node: Node) -> bool:
    options = node.plan.map_options
    return node.map is not None and options is not None and options.max_parallel is not None


def _waits(workflow: Workflow) -> bool:
    """R-35; places of a map that has elements on their way are seen when one of these ends."""
    ready = [node for node in workflow.all_nodes() if node.status == "READY"]
    return any(node.map is None or not _is_busy(node.map) for node in ready)


def _waits_in_a_map(workflow: Workflow) -> bool:
    return any(node.map is not None and node.status == "READY" for node in workflow.all_nodes())


def _is_busy(node: Node) -> bool:
    return any(element.status in ("ENQUEUED", "RUNNING") for element in node.elements)


def _has_no_open_node(workflow: Workflow) -> bool:
    """R-36."""
    return not workflow.open_nodes


def top_of(workflow: Workflow) -> Workflow:
    while workflow.parent is not None:
        workflow = workflow.parent.workflow
    return workflow
