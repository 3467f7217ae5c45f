"""What everything speaks in: results as values, the states of the life cycle, and blocking twins of coroutines."""

# fmt: off
from horsies.core.types.result import Err as Err, Ok as Ok, Result as Result, is_err as is_err, is_ok as is_ok
from horsies.core.types.status import (
    TASK_TERMINAL_STATES as TASK_TERMINAL_STATES, WORKFLOW_TASK_TERMINAL_STATES as WORKFLOW_TASK_TERMINAL_STATES,
    WORKFLOW_TERMINAL_STATES as WORKFLOW_TERMINAL_STATES, TaskAttemptOutcome as TaskAttemptOutcome,
    TaskStatus as TaskStatus, WorkflowStatus as WorkflowStatus, WorkflowTaskStatus as WorkflowTaskStatus,
)
from horsies.core.types.twins import is_blocking as is_blocking, pause as pause, run_sync as run_sync
