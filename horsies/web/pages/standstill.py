"""A paused workflow (M-91): why it stands still, and what a resume would do to it, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from horsies.core.models.monitoring.tasks import WorkflowNodeInfo, WorkflowRunDetail
from horsies.core.monitoring.audit import who_paused
from horsies.core.monitoring.resuming import AfterResume, after_resume
from horsies.core.text import visible
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus
from horsies.monitoring import AuditEntry

MOST_NAMED = 5
LONGEST_NAME = 60
SAID_AFTER: Mapping[str, str] = {
    "RUNNING": "The workflow continues.",
    "PAUSED": "The workflow was resumed, and is paused again: a node has failed.",
    "FAILED": "The workflow was resumed, and has ended as FAILED.",
    "COMPLETED": "The workflow was resumed, and has ended as COMPLETED.",
    "CANCELLED": "The workflow was cancelled meanwhile.",
}


@dataclass(frozen=True, slots=True)
class Standstill:
    """Why a workflow is paused: the nodes whose failure paused it, or who did, as far as that is known; nodes that
    have failed without pausing it; and what a resume would do."""

    paused_by: Sequence[WorkflowNodeInfo]
    actor: str | None
    failed: Sequence[WorkflowNodeInfo]
    resume: Sequence[str]
    is_child: bool

    @property
    def more_failed(self) -> int:
        """Failed nodes that are not named."""
        return max(0, len(self.failed) - MOST_NAMED)


def standstill_of(run: WorkflowRunDetail, audit: Iterable[AuditEntry], now: datetime) -> Standstill | None:
    """None if the workflow is not paused. A failure pauses in the transaction in which its node fails: then both have
    the same time."""
    paused_at = run.run.paused_at
    if run.run.status is not WorkflowStatus.PAUSED:
        return None
    failed = [node for node in run.nodes if node.status is WorkflowTaskStatus.FAILED and node.node_type != "ELEMENT"]
    by_failure = run.on_error == "PAUSE" and paused_at is not None
    paused_by = [node for node in failed if by_failure and node.completed_at == paused_at]
    others = [node for node in failed if node not in paused_by]
    actor = None if paused_by else who_paused(audit, paused_at)
    return Standstill(paused_by, actor, others, resume_in_words(run, now), run.run.parent_workflow_id is not None)


def resume_in_words(run: WorkflowRunDetail, now: datetime) -> list[str]:
    """What a resume would do, by the rules of the engine."""
    after = after_resume(run, now)
    said = []
    if after.failed:
        said.append(f"{_nodes('failed node', after.failed)} {_verb(after.failed, 'stays', 'stay')} failed.")
    if after.is_overdue:
        return [*said, "Its deadline has passed: nodes that have not started are skipped, and it ends as FAILED."]
    if not after.is_whole:
        return [*said, "Its next nodes start, and those that cannot run any more are skipped."]
    if after.skipped:
        said.append(f"{_listed(after.skipped)} will be skipped.")
    if after.starting:
        said.append(f"{_listed(after.starting)} {_verb(after.starting, 'starts', 'start')}.")
    if after.in_flight:
        said.append(f"{_listed(after.in_flight)} {_verb(after.in_flight, 'goes', 'go')} on.")
    return [*said, _end_in_words(run, after)]


def will_fail(run: WorkflowRunDetail, now: datetime) -> bool:
    """Whether a resume is certain to end in a failure."""
    return after_resume(run, now).end is WorkflowStatus.FAILED


def _end_in_words(run: WorkflowRunDetail, after: AfterResume) -> str:
    if after.ends_at_once:
        end = "FAIL" if after.end is WorkflowStatus.FAILED else "COMPLETE"
        return f"No node is left to run: the workflow will {end}."
    if after.end is WorkflowStatus.FAILED:
        return "Whatever becomes of the other nodes, the workflow will FAIL."
    if after.failed:
        return "Its success policy allows for this: the workflow may still complete."
    again = " If a node fails, it pauses again." if run.on_error == "PAUSE" else ""
    return f"The workflow continues.{again}"


def _nodes(what: str, names: Sequence[str]) -> str:
    return f"The {what} {_listed(names)}" if len(names) == 1 else f"The {len(names):,} {what}s {_listed(names)}"


def _verb(names: Sequence[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = [visible(name[:LONGEST_NAME]) for name in names[:MOST_NAMED]]
    if more := len(names) - len(shown):
        shown.append(f"{more:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
