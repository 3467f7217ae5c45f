"""horsies is a task queue and workflow engine on PostgreSQL.

Nothing is loaded before it is used: a program that only sends tasks does not load the code of a worker. Each public
name is imported from its module at its first use; type checkers and editors read the imports below.
"""

# fmt: off
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horsies.core.app import ChildProcessStartHook as ChildProcessStartHook, Horsies as Horsies
    from horsies.core.brokers.postgres import PostgresBroker as PostgresBroker
    from horsies.core.codec.context import WorkflowContext as WorkflowContext, WorkflowMeta as WorkflowMeta
    from horsies.core.errors import (
        ErrorCode as ErrorCode, HorsiesError as HorsiesError, MultipleValidationErrors as MultipleValidationErrors,
        ValidationReport as ValidationReport, WorkflowContextMissingIdError as WorkflowContextMissingIdError,
        WorkflowValidationError as WorkflowValidationError,
    )
    from horsies.core.exception_mapper import ExceptionMapper as ExceptionMapper
    from horsies.core.hooks import (
        FailureReason as FailureReason, HookRegistry as HookRegistry, Job as Job, JobInterrupted as JobInterrupted,
        JobRecovery as JobRecovery, JobRecoveryResult as JobRecoveryResult, WorkerRecovered as WorkerRecovered,
    )
    from horsies.core.models.app import AppConfig as AppConfig, PayloadPolicy as PayloadPolicy
    from horsies.core.models.broker import (
        BrokerErrorCode as BrokerErrorCode, BrokerOperationError as BrokerOperationError, BrokerResult as BrokerResult,
        DatabasePing as DatabasePing, PostgresConfig as PostgresConfig, WorkerPong as WorkerPong,
        WorkerStateSnapshot as WorkerStateSnapshot,
    )
    from horsies.core.models.notes import TaskLogLine as TaskLogLine, TaskLogs as TaskLogs, TaskProgress as TaskProgress
    from horsies.core.models.queues import CustomQueueConfig as CustomQueueConfig, QueueMode as QueueMode
    from horsies.core.models.recovery import (
        INFRASTRUCTURE_RESILIENT_FLAG as INFRASTRUCTURE_RESILIENT_FLAG, ActiveWorker as ActiveWorker,
        RecoveryConfig as RecoveryConfig, SweepStaleWorkersOptions as SweepStaleWorkersOptions,
        SweepStaleWorkersResult as SweepStaleWorkersResult, WorkerRecoveryConfig as WorkerRecoveryConfig,
        WorkerResilienceConfig as WorkerResilienceConfig,
    )
    from horsies.core.models.schedule.config import (
        ScheduleConfig as ScheduleConfig, ScheduleError as ScheduleError, ScheduleErrorCode as ScheduleErrorCode,
        ScheduleInfo as ScheduleInfo, SchedulePattern as SchedulePattern, ScheduleResult as ScheduleResult,
        ScheduleSource as ScheduleSource, TaskSchedule as TaskSchedule,
    )
    from horsies.core.models.schedule.cron import CronSchedule as CronSchedule
    from horsies.core.models.schedule.cron_terms import (
        BothDays as BothDays, ByMonthDay as ByMonthDay, ByWeekday as ByWeekday, CronEnumRange as CronEnumRange,
        CronEnumStep as CronEnumStep, CronEnumValues as CronEnumValues, CronEvery as CronEvery, CronRange as CronRange,
        CronStep as CronStep, CronValues as CronValues, DaySelector as DaySelector, EitherDay as EitherDay,
        EveryDay as EveryDay,
    )
    from horsies.core.models.schedule.patterns import (
        DailySchedule as DailySchedule, HourlySchedule as HourlySchedule, IntervalSchedule as IntervalSchedule,
        Month as Month, MonthlySchedule as MonthlySchedule, Weekday as Weekday, WeeklySchedule as WeeklySchedule,
    )
    from horsies.core.models.tasks import (
        BuiltInTaskCode as BuiltInTaskCode, ContractCode as ContractCode, OperationalErrorCode as OperationalErrorCode,
        OutcomeCode as OutcomeCode, RetrievalCode as RetrievalCode, RetryPolicy as RetryPolicy,
        SubWorkflowError as SubWorkflowError, SubWorkflowSummary as SubWorkflowSummary,
        TaskAttemptInfo as TaskAttemptInfo, TaskError as TaskError, TaskFailed as TaskFailed, TaskInfo as TaskInfo,
        TaskResult as TaskResult, TaskSendError as TaskSendError, TaskSendErrorCode as TaskSendErrorCode,
        TaskSendFailed as TaskSendFailed, TaskSendPayload as TaskSendPayload, TaskSendResult as TaskSendResult,
    )
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
    from horsies.core.producer.many import PreparedTask as PreparedTask, TaskSendOptions as TaskSendOptions
    from horsies.core.producer.send import TaskHandle as TaskHandle
    from horsies.core.recovery.reconcile import (
        recover_stuck_workflows as recover_stuck_workflows,
        recover_stuck_workflows_sync as recover_stuck_workflows_sync,
    )
    from horsies.core.recovery.utils import WorkerUtils as WorkerUtils
    from horsies.core.scheduler.runtime import Schedules as Schedules
    from horsies.core.tasks.context import (
        AsyncTaskContext as AsyncTaskContext, TaskContext as TaskContext, add_task_facts as add_task_facts,
        current_task as current_task,
    )
    from horsies.core.types import (
        TASK_TERMINAL_STATES as TASK_TERMINAL_STATES, WORKFLOW_TASK_TERMINAL_STATES as WORKFLOW_TASK_TERMINAL_STATES,
        WORKFLOW_TERMINAL_STATES as WORKFLOW_TERMINAL_STATES, Err as Err, Ok as Ok, Result as Result,
        TaskAttemptOutcome as TaskAttemptOutcome, TaskStatus as TaskStatus, WorkflowStatus as WorkflowStatus,
        WorkflowTaskStatus as WorkflowTaskStatus, is_err as is_err, is_ok as is_ok,
    )
    from horsies.core.worker.config import WorkerConfig as WorkerConfig
    from horsies.core.worker.service import Worker as Worker
    from horsies.core.workflows.control import (
        pause_workflow as pause_workflow, pause_workflow_sync as pause_workflow_sync,
        resume_workflow as resume_workflow, resume_workflow_sync as resume_workflow_sync,
    )
    from horsies.core.workflows.handle import WorkflowHandle as WorkflowHandle
    from horsies.core.workflows.start import (
        start_workflow as start_workflow, start_workflow_async as start_workflow_async,
    )

_NAMES = {
    "horsies.core.app": "ChildProcessStartHook Horsies",
    "horsies.core.brokers.postgres": "PostgresBroker",
    "horsies.core.codec.context": "WorkflowContext WorkflowMeta",
    "horsies.core.errors":
        "ErrorCode HorsiesError MultipleValidationErrors ValidationReport WorkflowContextMissingIdError "
        "WorkflowValidationError",
    "horsies.core.exception_mapper": "ExceptionMapper",
    "horsies.core.hooks": "FailureReason HookRegistry Job JobInterrupted JobRecovery JobRecoveryResult WorkerRecovered",
    "horsies.core.models.app": "AppConfig PayloadPolicy",
    "horsies.core.models.broker":
        "BrokerErrorCode BrokerOperationError BrokerResult DatabasePing PostgresConfig WorkerPong "
        "WorkerStateSnapshot",
    "horsies.core.models.notes": "TaskLogLine TaskLogs TaskProgress",
    "horsies.core.models.queues": "CustomQueueConfig QueueMode",
    "horsies.core.models.recovery":
        "INFRASTRUCTURE_RESILIENT_FLAG ActiveWorker RecoveryConfig SweepStaleWorkersOptions "
        "SweepStaleWorkersResult WorkerRecoveryConfig WorkerResilienceConfig",
    "horsies.core.models.schedule.config":
        "ScheduleConfig ScheduleError ScheduleErrorCode ScheduleInfo SchedulePattern ScheduleResult "
        "ScheduleSource TaskSchedule",
    "horsies.core.models.schedule.cron": "CronSchedule",
    "horsies.core.models.schedule.cron_terms":
        "BothDays ByMonthDay ByWeekday CronEnumRange CronEnumStep CronEnumValues CronEvery CronRange "
        "CronStep CronValues DaySelector EitherDay EveryDay",
    "horsies.core.models.schedule.patterns":
        "DailySchedule HourlySchedule IntervalSchedule Month MonthlySchedule Weekday WeeklySchedule",
    "horsies.core.models.tasks":
        "BuiltInTaskCode ContractCode OperationalErrorCode OutcomeCode RetrievalCode RetryPolicy "
        "SubWorkflowError SubWorkflowSummary TaskAttemptInfo TaskError TaskFailed TaskInfo TaskResult "
        "TaskSendError TaskSendErrorCode TaskSendFailed TaskSendPayload TaskSendResult",
    "horsies.core.models.workflow.definition": "WorkflowDefinition",
    "horsies.core.models.workflow.nodes":
        "AnyNode MapNode NodeKey SubWorkflowNode SuccessCase SuccessPolicy TaskNode from_node slugify",
    "horsies.core.models.workflow.results":
        "HandleErrorCode HandleOperationError HandleResult OnError WorkflowStartError WorkflowStartErrorCode "
        "WorkflowStartResult WorkflowTaskInfo",
    "horsies.core.models.workflow.spec": "WorkflowSpec",
    "horsies.core.producer.many": "PreparedTask TaskSendOptions",
    "horsies.core.producer.send": "TaskHandle",
    "horsies.core.recovery.reconcile": "recover_stuck_workflows recover_stuck_workflows_sync",
    "horsies.core.recovery.utils": "WorkerUtils",
    "horsies.core.scheduler.runtime": "Schedules",
    "horsies.core.tasks.context": "AsyncTaskContext TaskContext add_task_facts current_task",
    "horsies.core.types":
        "TASK_TERMINAL_STATES WORKFLOW_TASK_TERMINAL_STATES WORKFLOW_TERMINAL_STATES Err Ok Result "
        "TaskAttemptOutcome TaskStatus WorkflowStatus WorkflowTaskStatus is_err is_ok",
    "horsies.core.worker.config": "WorkerConfig",
    "horsies.core.worker.service": "Worker",
    "horsies.core.workflows.control": "pause_workflow pause_workflow_sync resume_workflow resume_workflow_sync",
    "horsies.core.workflows.handle": "WorkflowHandle",
    "horsies.core.workflows.start": "start_workflow start_workflow_async",
}
# fmt: on
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULE_OF)


if not TYPE_CHECKING:  # a checker that saw this function would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(_MODULE_OF[name])
        except ImportError:
            import_module("horsies.core.libpq")  # raises a clearer error if libpq is what is missing
            raise
        found = globals()[name] = getattr(module, name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
