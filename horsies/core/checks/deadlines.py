"""Retries that cannot happen before the deadline of their node (HRS-216).

Deadline and retry policy are both known in advance only for a node with `good_until`. The check uses the shortest
possible delays and assumes that attempts take no time: retries that do not fit under these assumptions never fit. A
deadline that has already passed is not reported here, because such a node does not run at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate
from typing import Any

from horsies.core.errors import CheckWarning, ErrorCode
from horsies.core.lifecycle.retry import delay_s
from horsies.core.models.tasks import OutcomeCode, TaskOptions
from horsies.core.models.workflow.nodes import TaskNode
from horsies.core.models.workflow.spec import WorkflowSpec


def problems(spec: WorkflowSpec[Any], now: datetime) -> Iterator[CheckWarning]:
    """The nodes of a workflow whose retries do not fit, if it is started now."""
    for node in spec.tasks:
        if not isinstance(node, TaskNode) or node.good_until is None:
            continue
        left_s = (node.good_until - now).total_seconds()
        times = earliest_retries(node.fn.options)
        fitting = sum(time < left_s for time in times)
        if left_s > 0 and fitting < len(times):
            yield _warning(spec, node, left_s, times, fitting)


def earliest_retries(options: TaskOptions) -> list[float]:
    """For each retry of a task, the earliest time in seconds at which it can happen."""
    policy = options.retry_policy
    if policy is None:
        return []
    # An attempt that is only retried because it took too long has taken that long.
    only_late = policy.codes == {OutcomeCode.TASK_TIMEOUT.value} and options.timeout_ms is not None
    attempt_s = (options.timeout_ms or 0) / 1000 if only_late else 0.0
    pauses = (attempt_s + delay_s(policy, number, lambda: 0.0) for number in range(1, policy.max_retries + 1))
    return list(accumulate(pauses))


def _warning(
    spec: WorkflowSpec[Any], node: TaskNode[Any], left_s: float, times: list[float], fitting: int
) -> CheckWarning:
    which = "none" if fitting == 0 else f"only {fitting}"
    return CheckWarning(
        f"workflow {spec.name!r}, node {node.node_id!r}: {which} of the {len(times)} retries of task {node.name!r} can "
        "happen before its deadline",
        code=ErrorCode.CHECK_RETRY_MISSES_DEADLINE,
        location=node.location or spec.location,
        notes=[
            f"the deadline is {left_s:.0f} s away; at the earliest the retries come after "
            f"{', '.join(f'{time:g}' for time in times)} s"
        ],
        help_text="give the node more time, or retry the task sooner or fewer times",
    )
