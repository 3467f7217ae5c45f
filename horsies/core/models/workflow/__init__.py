"""Workflows as users see them: nodes, specs, definitions, states and results.

Each name is imported at its first use, as in `horsies`. If this module imported its own submodules, of two threads that
import it and one of them at the same moment neither could go on.
"""

# fmt: off
from typing import TYPE_CHECKING, Any

import horsies

if TYPE_CHECKING:
    from horsies.core.codec.context import WorkflowContext, WorkflowMeta
    from horsies.core.models.tasks import SubWorkflowSummary
    from horsies.core.models.workflow.definition import WorkflowDefinition
    from horsies.core.models.workflow.nodes import (
        AnyNode, MapNode, NodeKey, SubWorkflowNode, SuccessCase, SuccessPolicy, TaskNode, from_node, slugify,
    )
    from horsies.core.models.workflow.results import (
        HandleErrorCode, HandleOperationError, HandleResult, OnError, WorkflowStartError, WorkflowStartErrorCode,
        WorkflowStartResult, WorkflowTaskInfo,
    )
    from horsies.core.models.workflow.spec import WorkflowSpec
    from horsies.core.types import (
        WORKFLOW_TASK_TERMINAL_STATES, WORKFLOW_TERMINAL_STATES, WorkflowStatus, WorkflowTaskStatus,
    )
# fmt: on

__all__ = [
    "WORKFLOW_TASK_TERMINAL_STATES",
    "WORKFLOW_TERMINAL_STATES",
    "AnyNode",
    "HandleErrorCode",
    "HandleOperationError",
    "HandleResult",
    "MapNode",
    "NodeKey",
    "OnError",
    "SubWorkflowNode",
    "SubWorkflowSummary",
    "SuccessCase",
    "SuccessPolicy",
    "TaskNode",
    "WorkflowContext",
    "WorkflowDefinition",
    "WorkflowMeta",
    "WorkflowSpec",
    "WorkflowStartError",
    "WorkflowStartErrorCode",
    "WorkflowStartResult",
    "WorkflowStatus",
    "WorkflowTaskInfo",
    "WorkflowTaskStatus",
    "from_node",
    "slugify",
]


if not TYPE_CHECKING:  # a checker that saw this function would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(horsies, name)
