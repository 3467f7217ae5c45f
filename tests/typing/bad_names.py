"""Names that do not exist, or not there."""

# ruff: noqa: I001

from horsies import TaskProgress  # E: attr-defined
from horsies import Wroker  # E: attr-defined
from horsies.core.models.schedule import TaskNode  # E: attr-defined
from horsies.core.models.workflow import CronSchedule  # E: attr-defined

print(TaskProgress, Wroker, TaskNode, CronSchedule)
