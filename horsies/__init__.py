"""horsies is a task queue and workflow engine on PostgreSQL."""

# fmt: off
from importlib import import_module
from typing import TYPE_CHECKING, Any

from horsies.core.app import ChildProcessStartHook, Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.codec.context import WorkflowContext, WorkflowMeta
from horsies.core.errors import (
    ErrorCode, HorsiesError, MultipleValidationErrors, ValidationReport, WorkflowContextMissingIdError,
    WorkflowValidationError,
)
from horsies.core.exception_mapper import ExceptionMapper
from horsies.core.hooks import (
    FailureReason, HookRegistry, Job, JobInterrupted, JobRecovery, JobRecoveryResult, WorkerRecovered,
)
from horsies.core.models.app import AppConfig, PayloadPolicy
from horsies.core.models.broker import (
    BrokerErrorCode, BrokerOperationError, BrokerResult, DatabasePing, PostgresConfig, WorkerPong, WorkerStateSnapshot,
)
from horsies.core.models.notes import TaskLogLine, TaskLogs, TaskProgress
from horsies.core.models.queues import CustomQueueConfig, QueueMode
from horsies.core.models.recovery import (
    INFRASTRUCTURE_RESILIENT_FLAG, ActiveWorker, RecoveryConfig, SweepStaleWorkersOptions, SweepStaleWorkersResult,
    WorkerRecoveryConfig, WorkerResilienceConfig,
)
from horsies.core.models.schedule import (
    BothDays, ByMonthDay, ByWeekday, CronEnumRange, CronEnumStep, CronEnumValues, CronEvery, CronRange, CronSchedule,
    CronStep, CronValues, DailySchedule, DaySelector, EitherDay, EveryDay, HourlySchedule, IntervalSchedule, Month,
    MonthlySchedule, ScheduleConfig, SchedulePattern, TaskSchedule, Weekday, WeeklySchedule,
)
from horsies.core.models.schedule.config import (
    ScheduleError, ScheduleErrorCode, ScheduleInfo, ScheduleResult, ScheduleSource,
)
from horsies.core.models.tasks import (
    BuiltInTaskCode, ContractCode, OperationalErrorCode, OutcomeCode, RetrievalCode, RetryPolicy, SubWorkflowError,
    SubWorkflowSummary, TaskAttemptInfo, TaskError, TaskFailed, TaskInfo, TaskResult, TaskSendError, TaskSendErrorCode,
    TaskSendFailed, TaskSendPayload, TaskSendResult,
)
from horsies.core.models.workflow.definition import WorkflowDefinition
from horsies.core.models.workflow.nodes import (
    AnyNode, MapNode, NodeKey, SubWorkflowNode, SuccessCase, SuccessPolicy, TaskNode, from_node, slugify,
)
from horsies.core.models.workflow.results import (
    HandleErrorCode, HandleOperationError, HandleResult, OnError, WorkflowStartError, WorkflowStartErrorCode,
    WorkflowStartResult, WorkflowTaskInfo,
)
from horsies.core.models.workflow.spec import WorkflowSpec
from horsies.core.producer.send import TaskHandle
from horsies.core.producer.many import PreparedTask, TaskSendOptions
from horsies.core.recovery.reconcile import recover_stuck_workflows, recover_stuck_workflows_sync
from horsies.core.recovery.utils import WorkerUtils
from horsies.core.scheduler.runtime import Schedules
from horsies.core.tasks.context import AsyncTaskContext, TaskContext, add_task_facts, current_task
from horsies.core.types import (
    TASK_TERMINAL_STATES, WORKFLOW_TASK_TERMINAL_STATES, WORKFLOW_TERMINAL_STATES, Err, Ok, Result, TaskAttemptOutcome,
    TaskStatus, WorkflowStatus, WorkflowTaskStatus, is_err, is_ok,
)
from horsies.core.workflows.control import pause_workflow, pause_workflow_sync, resume_workflow, resume_workflow_sync
from horsies.core.workflows.handle import WorkflowHandle
from horsies.core.workflows.start import start_workflow, start_workflow_async
# fmt: on

if TYPE_CHECKING:
    from horsies.core.worker.config import WorkerConfig
    from horsies.core.worker.service import Worker

__all__ = [
    "INFRASTRUCTURE_RESILIENT_FLAG",
    "TASK_TERMINAL_STATES",
    "WORKFLOW_TASK_TERMINAL_STATES",
    "WORKFLOW_TERMINAL_STATES",
    "ActiveWorker",
    "AnyNode",
    "AppConfig",
    "AsyncTaskContext",
    "BothDays",
    "BrokerErrorCode",
    "BrokerOperationError",
    "BrokerResult",
    "BuiltInTaskCode",
    "ByMonthDay",
    "ByWeekday",
    "ChildProcessStartHook",
    "ContractCode",
    "CronEnumRange",
    "CronEnumStep",
    "CronEnumValues",
    "CronEvery",
    "CronRange",
    "CronSchedule",
    "CronStep",
    "CronValues",
    "CustomQueueConfig",
    "DailySchedule",
    "DatabasePing",
    "DaySelector",
    "EitherDay",
    "Err",
    "ErrorCode",
    "EveryDay",
    "ExceptionMapper",
    "FailureReason",
    "HandleErrorCode",
    "HandleOperationError",
    "HandleResult",
    "HookRegistry",
    "Horsies",
    "HorsiesError",
    "HourlySchedule",
    "IntervalSchedule",
    "Job",
    "JobInterrupted",
    "JobRecovery",
    "JobRecoveryResult",
    "MapNode",
    "Month",
    "MonthlySchedule",
    "MultipleValidationErrors",
    "NodeKey",
    "Ok",
    "OnError",
    "OperationalErrorCode",
    "OutcomeCode",
    "PayloadPolicy",
    "PostgresBroker",
    "PostgresConfig",
    "PreparedTask",
    "QueueMode",
    "RecoveryConfig",
    "Result",
    "RetrievalCode",
    "RetryPolicy",
    "ScheduleConfig",
    "ScheduleError",
    "ScheduleErrorCode",
    "ScheduleInfo",
    "SchedulePattern",
    "ScheduleResult",
    "ScheduleSource",
    "Schedules",
    "SubWorkflowError",
    "SubWorkflowNode",
    "SubWorkflowSummary",
    "SuccessCase",
    "SuccessPolicy",
    "SweepStaleWorkersOptions",
    "SweepStaleWorkersResult",
    "TaskAttemptInfo",
    "TaskAttemptOutcome",
    "TaskContext",
    "TaskError",
    "TaskFailed",
    "TaskHandle",
    "TaskInfo",
    "TaskLogLine",
    "TaskLogs",
    "TaskNode",
    "TaskProgress",
    "TaskResult",
    "TaskSchedule",
    "TaskSendError",
    "TaskSendErrorCode",
    "TaskSendFailed",
    "TaskSendOptions",
    "TaskSendPayload",
    "TaskSendResult",
    "TaskStatus",
    "ValidationReport",
    "Weekday",
    "WeeklySchedule",
    "Worker",
    "WorkerConfig",
    "WorkerPong",
    "WorkerRecovered",
    "WorkerRecoveryConfig",
    "WorkerResilienceConfig",
    "WorkerStateSnapshot",
    "WorkerUtils",
    "WorkflowContext",
    "WorkflowContextMissingIdError",
    "WorkflowDefinition",
    "WorkflowHandle",
    "WorkflowMeta",
    "WorkflowSpec",
    "WorkflowStartError",
    "WorkflowStartErrorCode",
    "WorkflowStartResult",
    "WorkflowStatus",
    "WorkflowTaskInfo",
    "WorkflowTaskStatus",
    "WorkflowValidationError",
    "add_task_facts",
    "current_task",
    "from_node",
    "is_err",
    "is_ok",
    "pause_workflow",
    "pause_workflow_sync",
    "recover_stuck_workflows",
    "recover_stuck_workflows_sync",
    "resume_workflow",
    "resume_workflow_sync",
    "slugify",
    "start_workflow",
    "start_workflow_async",
]

# A program that only sends does not need the code of a worker. These names are imported on first use.
_LATER = {"Worker": "horsies.core.worker.service", "WorkerConfig": "horsies.core.worker.config"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
