"""Look at the queue and act on it: async functions whose first parameter is the broker."""

from horsies.core.monitoring.actions import TaskActionError, TaskActionErrorCode, TaskActionResult, TaskCancelled
from horsies.core.monitoring.api import cancel_task

__all__ = ["TaskActionError", "TaskActionErrorCode", "TaskActionResult", "TaskCancelled", "cancel_task"]
