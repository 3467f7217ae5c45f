"""What a resume would do to a paused workflow (F-52), decided by the very rules of the engine on the nodes as they were
read. Pure: nothing is asked and nothing is changed. Child workflows, which are resumed too, are not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from horsies.core.models.monitoring.tasks import WorkflowNodeInfo, WorkflowRunDetail
from horsies.core.store.workflows import Closing, Flow, FlowNode
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.finish import conclude
from horsies.core.workflows.settle import FlowState, Settling

_IN_FLIGHT = (WorkflowTaskStatus.ENQUEUED, WorkflowTaskStatus.RUNNING)
_LOST = (WorkflowTaskStatus.FAILED, WorkflowTaskStatus.SKIPPED)


@dataclass(frozen=True, slots=True)
class AfterResume:
    """What becomes of the nodes, by their names, and of the workflow. `end` is the state in which it is certain to end,
    None if that depends on nodes that have not ended; `ends_at_once` says that no node is left to run. Of a workflow
    with too many nodes to read, or with rows that the engine could not use, only the first step is known
    (`is_whole`)."""

    failed: tuple[str, ...]
    skipped: tuple[str, ...]
    starting: tuple[str, ...]
    in_flight: tuple[str, ...]
    end: WorkflowStatus | None
    ends_at_once: bool
    is_overdue: bool
    is_whole: bool


def after_resume(run: WorkflowRunDetail, now: datetime) -> AfterResume:
    """What a resume would do at this moment."""
    flow = _flow(run, now)
    settling = Settling([flow])
    state = settling.flows[flow.id]
    state.status = WorkflowStatus.RUNNING
    settling.add(_nodes(run))
    is_whole = run.total_nodes == len(run.nodes) and run.total_edges == len(run.edges) and _has_usable_policy(run)
    for key in list(settling.nodes):
        settling.evaluate(key)
    while is_whole and not settling.is_settled:
        settling.run()
        is_whole = not settling.wanted()  # a node of which others speak does not exist: the engine would stop, too
    after = {key[1]: node.status for key, node in settling.nodes.items()}
    own = [node for node in run.nodes if node.node_type != "ELEMENT"]

    def named(*states: WorkflowTaskStatus, new: bool = False) -> tuple[str, ...]:
        found = [node for node in own if after[node.task_index] in states]
        return tuple(node.node_id for node in found if not new or node.status is not after[node.task_index])

    return AfterResume(
        failed=named(WorkflowTaskStatus.FAILED),
        skipped=named(WorkflowTaskStatus.SKIPPED, new=True),
        starting=named(WorkflowTaskStatus.READY),
        in_flight=named(*_IN_FLIGHT),
        end=_end(run, state, after) if is_whole else None,
        ends_at_once=is_whole and state.open_nodes == 0,
        is_overdue=flow.is_overdue,
        is_whole=is_whole,
    )


def _flow(run: WorkflowRunDetail, now: datetime) -> Flow:
    row = run.run
    return Flow(
        id=row.workflow_id,
        status=row.status,
        on_error=run.on_error,
        output_index=run.output_index,
        success_policy=None if run.success_policy is None or not _has_usable_policy(run) else dict(run.success_policy),
        has_error=row.error_code is not None,
        parent_workflow_id=row.parent_workflow_id,
        parent_task_index=None,
        root_workflow_id=row.root_workflow_id,
        depth=row.depth,
        good_until=row.good_until,
        is_overdue=row.good_until is not None and row.good_until <= now,
        open_nodes=row.open_nodes,
    )


def _has_usable_policy(run: WorkflowRunDetail) -> bool:
    """Whether the engine could read the policy: a row may have any JSON there."""
    policy: object = run.success_policy
    if policy is None:
        return True
    cases = policy.get("cases", []) if isinstance(policy, Mapping) else None
    if not isinstance(cases, list) or not all(isinstance(case, list) for case in cases):
        return False
    return all(isinstance(index, int) for case in cases for index in case)


def _nodes(run: WorkflowRunDetail) -> list[FlowNode]:
    dependents: dict[int, list[int]] = defaultdict(list)
    for edge in run.edges:
        dependents[edge.source].append(edge.target)
    expanded = {node.map_index for node in run.nodes}
    return [_node(run.run.workflow_id, node, dependents[node.task_index], expanded) for node in run.nodes]


def _node(workflow_id: str, node: WorkflowNodeInfo, dependents: list[int], expanded: set[int | None]) -> FlowNode:
    return FlowNode(
        workflow_id=workflow_id,
        task_index=node.task_index,
        node_type=node.node_type,
        status=node.status,
        dependents=dependents,
        total=node.deps_total,
        completed=node.deps_completed,
        failed=node.deps_failed,
        skipped=node.deps_skipped,
        join=node.join_type,
        min_success=node.min_success,
        allow_failed_deps=node.allow_failed_deps,
        map_index=node.map_index,
        task_id=node.task_id,
        sub_workflow_id=node.sub_workflow_id,
        has_elements=node.node_type == "MAP" and node.task_index in expanded,
    )


def _end(run: WorkflowRunDetail, state: FlowState, after: dict[int, WorkflowTaskStatus]) -> WorkflowStatus | None:
    """How the workflow ends for certain. If nodes are still open, it fails for certain if a failure counts that has
    happened already, or if no case of its policy can be met any more."""
    own = [node for node in run.nodes if node.node_type != "ELEMENT"]
    has_error = run.error is not None or run.run.error_code is not None
    if state.open_nodes == 0:
        closings = [
            Closing(run.run.workflow_id, node.task_index, after[node.task_index], None, None, node.completed_at)
            for node in own
        ]
        if has_error:  # the failure that the workflow itself has recorded
            closings.append(Closing(run.run.workflow_id, -1, WorkflowTaskStatus.FAILED, None, None, None))
        return conclude(state.row, closings).status
    if state.row.is_overdue:
        return WorkflowStatus.FAILED
    if run.success_policy is None:
        has_failed = has_error or any(after[node.task_index] is WorkflowTaskStatus.FAILED for node in own)
        return WorkflowStatus.FAILED if has_failed else None
    cases = run.success_policy.get("cases", [])
    can_succeed = any(all(after.get(index) not in _LOST for index in case) for case in cases)
    return None if can_succeed else WorkflowStatus.FAILED
