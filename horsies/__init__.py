"""horsies: a PostgreSQL-backed task queue, fast, typed, and exact about every state."""

from horsies.core.app import ChildProcessStartHook, Horsies
from horsies.core.errors import (
    ErrorCode,
    HorsiesError,
    MultipleValidationErrors,
    ValidationReport,
    WorkflowContextMissingIdError,
    WorkflowValidationError,
)
from horsies.core.exception_mapper import ExceptionMapper
from horsies.core.hooks import (
    FailureReason,
    HookRegistry,
    Job,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    WorkerRecovered,
)
from horsies.core.models.app import AppConfig, PayloadPolicy
from horsies.core.models.broker import (
    BrokerErrorCode,
    BrokerOperationError,
    BrokerResult,
    DatabasePing,
    PostgresConfig,
    WorkerPong,
    WorkerStateSnapshot,
)
from horsies.core.models.queues import CustomQueueConfig, QueueMode
from horsies.core.models.recovery import INFRASTRUCTURE_RESILIENT_FLAG, RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.resilience import WorkerResilienceConfig
from horsies.core.models.sweeping import ActiveWorker, SweepStaleWorkersOptions, SweepStaleWorkersResult
from horsies.core.models.tasks import (
    BuiltInTaskCode,
    ContractCode,
    OperationalErrorCode,
    OutcomeCode,
    RetrievalCode,
    RetryPolicy,
    SubWorkflowError,
    SubWorkflowSummary,
    TaskAttemptInfo,
    TaskError,
    TaskInfo,
    TaskResult,
    TaskSendError,
    TaskSendErrorCode,
    TaskSendPayload,
    TaskSendResult,
)
from horsies.core.producer.builder import TaskSendOptions
from horsies.core.producer.handle import TaskHandle
from horsies.core.producer.many import PreparedTask
from horsies.core.recovery.worker_utils import WorkerUtils
from horsies.core.types.result import Err, Ok, Result, is_err, is_ok
from horsies.core.types.status import (
    TASK_TERMINAL_STATES,
    WORKFLOW_TASK_TERMINAL_STATES,
    WORKFLOW_TERMINAL_STATES,
    TaskAttemptOutcome,
    TaskStatus,
    WorkflowStatus,
    WorkflowTaskStatus,
)

__all__ = [
    "INFRASTRUCTURE_RESILIENT_FLAG",
    "TASK_TERMINAL_STATES",
    "WORKFLOW_TASK_TERMINAL_STATES",
    "WORKFLOW_TERMINAL_STATES",
    "ActiveWorker",
    "AppConfig",
    "BrokerErrorCode",
    "BrokerOperationError",
    "BrokerResult",
    "BuiltInTaskCode",
    "ChildProcessStartHook",
    "ContractCode",
    "CustomQueueConfig",
    "DatabasePing",
    "Err",
    "ErrorCode",
    "ExceptionMapper",
    "FailureReason",
    "HookRegistry",
    "Horsies",
    "HorsiesError",
    "Job",
    "JobInterrupted",
    "JobRecovery",
    "JobRecoveryResult",
    "MultipleValidationErrors",
    "Ok",
    "OperationalErrorCode",
    "OutcomeCode",
    "PayloadPolicy",
    "PostgresConfig",
    "PreparedTask",
    "QueueMode",
    "RecoveryConfig",
    "Result",
    "RetrievalCode",
    "RetryPolicy",
    "SubWorkflowError",
    "SubWorkflowSummary",
    "SweepStaleWorkersOptions",
    "SweepStaleWorkersResult",
    "TaskAttemptInfo",
    "TaskAttemptOutcome",
    "TaskError",
    "TaskHandle",
    "TaskInfo",
    "TaskResult",
    "TaskSendError",
    "TaskSendErrorCode",
    "TaskSendOptions",
    "TaskSendPayload",
    "TaskSendResult",
    "TaskStatus",
    "ValidationReport",
    "WorkerPong",
    "WorkerRecovered",
    "WorkerRecoveryConfig",
    "WorkerResilienceConfig",
    "WorkerStateSnapshot",
    "WorkerUtils",
    "WorkflowContextMissingIdError",
    "WorkflowStatus",
    "WorkflowTaskStatus",
    "WorkflowValidationError",
    "is_err",
    "is_ok",
]
