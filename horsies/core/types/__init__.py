"""What everything speaks in: results as values, the states of the life cycle, and blocking twins of coroutines."""

# fmt: off
from horsies.core.types.result import Err, Ok, Result, is_err, is_ok
from horsies.core.types.status import (
    TASK_TERMINAL_STATES, WORKFLOW_TASK_TERMINAL_STATES, WORKFLOW_TERMINAL_STATES, TaskAttemptOutcome, TaskStatus,
    WorkflowStatus, WorkflowTaskStatus,
)
from horsies.core.types.twins import is_blocking, pause, run_sync
# fmt: on

__all__ = [
    "TASK_TERMINAL_STATES",
    "WORKFLOW_TASK_TERMINAL_STATES",
    "WORKFLOW_TERMINAL_STATES",
    "Err",
    "Ok",
    "Result",
    "TaskAttemptOutcome",
    "TaskStatus",
    "WorkflowStatus",
    "WorkflowTaskStatus",
    "is_blocking",
    "is_err",
    "is_ok",
    "pause",
    "run_sync",
]
