"""Names that do not exist, or not there."""

# ruff: noqa: F401, I001

from horsies import TaskProgress  # E: attr-defined
from horsies import Wroker  # E: attr-defined
from horsies.core.models.schedule import TaskNode  # E: attr-defined
from horsies.core.models.workflow import CronSchedule  # E: attr-defined
