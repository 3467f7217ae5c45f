"""The public names, each once: imports for type checkers and editors, and for Python the list of what `horsies` has.

Python does not run these imports as such. `horsies` reads from them where each name lives (`names_of`) and imports a
module when one of its names is first used. A table of names beside imports for type checkers would be a second list, a
table alone would hide the names from type checkers, and a stub (`__init__.pyi`) would not exist in a bundled program.
"""

# fmt: off
from horsies.core.app import ChildProcessStartHook as ChildProcessStartHook, Horsies as Horsies
from horsies.core.brokers.postgres import PostgresBroker as PostgresBroker
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
from horsies.core.models.notes import TaskLogs as TaskLogs
from horsies.core.models.queues import CustomQueueConfig as CustomQueueConfig, QueueMode as QueueMode
from horsies.core.models.recovery import (
    INFRASTRUCTURE_RESILIENT_FLAG as INFRASTRUCTURE_RESILIENT_FLAG, ActiveWorker as ActiveWorker,
    RecoveryConfig as RecoveryConfig, SweepStaleWorkersOptions as SweepStaleWorkersOptions,
    SweepStaleWorkersResult as SweepStaleWorkersResult, WorkerRecoveryConfig as WorkerRecoveryConfig,
    WorkerResilienceConfig as WorkerResilienceConfig,
)
from horsies.core.models.tasks import (
    BuiltInTaskCode as BuiltInTaskCode, ContractCode as ContractCode, OperationalErrorCode as OperationalErrorCode,
    OutcomeCode as OutcomeCode, RetrievalCode as RetrievalCode, RetryPolicy as RetryPolicy,
    SubWorkflowError as SubWorkflowError, TaskAttemptInfo as TaskAttemptInfo, TaskError as TaskError,
    TaskFailed as TaskFailed, TaskInfo as TaskInfo, TaskResult as TaskResult, TaskSendError as TaskSendError,
    TaskSendErrorCode as TaskSendErrorCode, TaskSendFailed as TaskSendFailed, TaskSendPayload as TaskSendPayload,
    TaskSendResult as TaskSendResult,
)
from horsies.core.producer.many import TaskSendOptions as TaskSendOptions
from horsies.core.producer.send import TaskHandle as TaskHandle
from horsies.core.recovery.reconcile import (
    recover_stuck_workflows as recover_stuck_workflows, recover_stuck_workflows_sync as recover_stuck_workflows_sync,
)
from horsies.core.recovery.utils import WorkerUtils as WorkerUtils
from horsies.core.scheduler.runtime import Schedules as Schedules
from horsies.core.tasks.context import (
    AsyncTaskContext as AsyncTaskContext, TaskContext as TaskContext, current_task as current_task,
)
from horsies.core.types import (
    TASK_TERMINAL_STATES as TASK_TERMINAL_STATES, Err as Err, Ok as Ok, Result as Result,
    TaskAttemptOutcome as TaskAttemptOutcome, TaskStatus as TaskStatus, is_err as is_err, is_ok as is_ok,
)
from horsies.core.worker.config import WorkerConfig as WorkerConfig
from horsies.core.worker.service import Worker as Worker
from horsies.core.workflows.control import (
    pause_workflow as pause_workflow, pause_workflow_sync as pause_workflow_sync, resume_workflow as resume_workflow,
    resume_workflow_sync as resume_workflow_sync,
)
from horsies.core.workflows.handle import WorkflowHandle as WorkflowHandle
from horsies.core.workflows.start import start_workflow as start_workflow, start_workflow_async as start_workflow_async

from horsies._public_schedules import *  # noqa: F403
from horsies._public_workflows import *  # noqa: F403
