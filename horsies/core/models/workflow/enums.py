"""What a workflow does after errors, and, re-exported, the states of workflows and their nodes."""

from __future__ import annotations

from enum import StrEnum

from horsies.core.types.status import (
    WORKFLOW_TASK_TERMINAL_STATES,
    WORKFLOW_TERMINAL_STATES,
    WorkflowStatus,
    WorkflowTaskStatus,
)

__all__ = [
    "WORKFLOW_TASK_TERMINAL_STATES",
    "WORKFLOW_TERMINAL_STATES",
    "OnError",
    "WorkflowStatus",
    "WorkflowTaskStatus",
]


class OnError(StrEnum):
    """After the final failure of a node: continue with everything that does not depend on it, or pause until somebody
    resumes."""

    FAIL = "fail"
    PAUSE = "pause"
