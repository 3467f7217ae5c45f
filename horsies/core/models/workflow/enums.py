"""What a workflow does about errors, how a node waits for several others, and, re-exported, the states of workflows and
their nodes."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from horsies.core.types.status import (
    WORKFLOW_TASK_TERMINAL_STATES,
    WORKFLOW_TERMINAL_STATES,
    WorkflowStatus,
    WorkflowTaskStatus,
)

__all__ = [
    "WORKFLOW_TASK_TERMINAL_STATES",
    "WORKFLOW_TERMINAL_STATES",
    "Join",
    "OnError",
    "WorkflowStatus",
    "WorkflowTaskStatus",
]

Join: TypeAlias = Literal["all", "any", "quorum"]


class OnError(StrEnum):
    """After the final failure of a node: continue with everything that does not depend on it, or pause until somebody
    resumes."""

    FAIL = "fail"
    PAUSE = "pause"
