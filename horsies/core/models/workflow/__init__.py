"""Workflows as users see them: nodes, specs, definitions, states and results."""

# fmt: off
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

# Where the names are defined, in the order in which they are looked for.
