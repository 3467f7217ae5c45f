"""Workflows as users see them. The names are imported on first access: importing one of these modules must not import
them all, because the codec of tasks needs the context, and specs need the codec.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horsies.core.codec.context import WorkflowContext, WorkflowMeta
    from horsies.core.models.tasks import SubWorkflowSummary
    from horsies.core.models.workflow.definition import WorkflowDefinition
    from horsies.core.models.workflow.nodes import (
        AnyNode,
        MapNode,
        NodeKey,
        SubWorkflowNode,
        SuccessCase,
        SuccessPolicy,
        TaskNode,
        from_node,
        slugify,
    )
    from horsies.core.models.workflow.results import (
        HandleErrorCode,
        HandleOperationError,
        HandleResult,
        OnError,
        WorkflowStartError,
        WorkflowStartErrorCode,
        WorkflowStartResult,
        WorkflowTaskInfo,
    )
    from horsies.core.models.workflow.spec import WorkflowSpec
    from horsies.core.types.status import (
        WORKFLOW_TASK_TERMINAL_STATES,
        WORKFLOW_TERMINAL_STATES,
        WorkflowStatus,
        WorkflowTaskStatus,
    )

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

# Where the names are defined, in the order in which they are looked for.
_MODULES = (
    "horsies.core.models.workflow.nodes",
    "horsies.core.models.workflow.definition",
    "horsies.core.models.workflow.spec",
    "horsies.core.models.workflow.results",
    "horsies.core.codec.context",
    "horsies.core.models.tasks",
    "horsies.core.types.status",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = import_module(module)
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
