"""What workflows are made of: these names of `horsies` are in `horsies.core.models.workflow` too. See `_public.py`."""

# fmt: off
from horsies.core.codec.context import WorkflowContext as WorkflowContext, WorkflowMeta as WorkflowMeta
from horsies.core.models.tasks import SubWorkflowSummary as SubWorkflowSummary
from horsies.core.models.workflow.definition import WorkflowDefinition as WorkflowDefinition
from horsies.core.models.workflow.nodes import (
    AnyNode as AnyNode, MapNode as MapNode, NodeKey as NodeKey, SubWorkflowNode as SubWorkflowNode,
    SuccessCase as SuccessCase, SuccessPolicy as SuccessPolicy, TaskNode as TaskNode, from_node as from_node,
    slugify as slugify,
)
from horsies.core.models.workflow.results import (
    HandleErrorCode as HandleErrorCode, HandleOperationError as HandleOperationError, HandleResult as HandleResult,
    OnError as OnError, WorkflowStartError as WorkflowStartError, WorkflowStartErrorCode as WorkflowStartErrorCode,
    WorkflowStartResult as WorkflowStartResult, WorkflowTaskInfo as WorkflowTaskInfo,
)
from horsies.core.models.workflow.spec import WorkflowSpec as WorkflowSpec
from horsies.core.types import (
    WORKFLOW_TASK_TERMINAL_STATES as WORKFLOW_TASK_TERMINAL_STATES,
    WORKFLOW_TERMINAL_STATES as WORKFLOW_TERMINAL_STATES, WorkflowStatus as WorkflowStatus,
    WorkflowTaskStatus as WorkflowTaskStatus,
)
