"""Warnings: things that work, but probably not as intended. They are looked for when there are no errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from horsies.core.checks.code import Subject, undecorated_in_own_module
from horsies.core.definition import TaskDefinition
from horsies.core.errors import CheckWarning, ErrorCode
from horsies.core.lifecycle.retry import delay_s
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY, RETRY_ELIGIBLE
from horsies.core.models.retry import RetryPolicy
from horsies.core.models.tasks import OutcomeCode, TaskOptions
from horsies.core.models.workflow.nodes import TaskNode
from horsies.core.models.workflow.spec import WorkflowSpec


def advice(subject: Subject) -> Iterator[CheckWarning]:
    """All warnings."""
    yield from undecorated_in_own_module(subject)
    now = datetime.now(UTC)
    for spec in _specs(subject):
        yield from late_retries(spec, now)
    yield from useless_retry_codes(subject.app.tasks.values())


def late_retries(spec: WorkflowSpec[Any], now: datetime) -> Iterator[CheckWarning]:
    """Retries that cannot happen before the deadline of their node (HRS-216), if the workflow is started now.

    A deadline and a retry policy are both known beforehand in one place only: a node with `good_until`. The pauses are
    taken at their shortest and the attempts as if they took no time: what does not fit then never does. A deadline that
    has passed already is none of this: such a node does not run at all."""
    for node in spec.tasks:
        if not isinstance(node, TaskNode) or node.good_until is None:
            continue
        left_s = (node.good_until - now).total_seconds()
        times = earliest_retries(node.fn.options)
        fitting = sum(time < left_s for time in times)
        if left_s > 0 and fitting < len(times):
            yield _late(spec, node, left_s, times, fitting)


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


def useless_retry_codes(tasks: Collection[TaskDefinition[Any, Any]]) -> Iterator[CheckWarning]:
    """Built-in codes in `auto_retry_for` that never cause a retry (HRS-217). A policy that several tasks share may list
    what only one of them can end with. Which codes of their own the functions return is not known here."""
    for task in tasks:
        policy = task.options.retry_policy
        for code in sorted(policy.codes & BUILTIN_CODE_REGISTRY.keys() if policy else ()):
            if code not in RETRY_ELIGIBLE:
                why, hint = "a task that ends with it is never tried again", f"of the built-in codes: {_RETRIED}"
            elif code == OutcomeCode.TASK_TIMEOUT and not _is_limited(policy, tasks):
                why, hint = "the task has no time limit", "@app.task(..., timeout_ms=...)"
            else:
                continue
            yield CheckWarning(
                f"task {task.task_name!r}: auto_retry_for lists {code}, but {why}",
                code=ErrorCode.CHECK_RETRY_CODE_NEVER_SEEN,
                location=task.location,
                help_text=hint,
            )


_RETRIED = ", ".join(sorted(RETRY_ELIGIBLE))


def _is_limited(policy: RetryPolicy | None, tasks: Collection[TaskDefinition[Any, Any]]) -> bool:
    return any(task.options.timeout_ms is not None for task in tasks if task.options.retry_policy == policy)


def _specs(subject: Subject) -> list[WorkflowSpec[Any]]:
    """The workflows that the check has built, and those that modules have built themselves."""
    of_modules = [
        value for module in subject.modules for value in vars(module).values() if isinstance(value, WorkflowSpec)
    ]
    return list({id(spec): spec for spec in [*subject.specs, *of_modules]}.values())


def _late(
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
