"""What can be imported from where (T-01, T-02, T-03, L-01, L-02)."""

from __future__ import annotations

import importlib

import pytest

import horsies
from horsies import TASK_TERMINAL_STATES, TaskStatus, WorkflowStatus, WorkflowTaskStatus
from tests.each import each

# T-02, without what belongs to workflows (F-01, below) and schedules.
NAMES = [
    "Horsies",
    "AppConfig",
    "PostgresConfig",
    "QueueMode",
    "CustomQueueConfig",
    "PayloadPolicy",
    "TaskLogs",
    "ChildProcessStartHook",
    "TaskResult",
    "TaskError",
    "SubWorkflowError",
    "TaskInfo",
    "TaskAttemptInfo",
    "Result",
    "Ok",
    "Err",
    "is_ok",
    "is_err",
    "OperationalErrorCode",
    "ContractCode",
    "RetrievalCode",
    "OutcomeCode",
    "BuiltInTaskCode",
    "ErrorCode",
    "TaskStatus",
    "TaskAttemptOutcome",
    "TASK_TERMINAL_STATES",
    "WorkflowStatus",
    "WorkflowTaskStatus",
    "WORKFLOW_TERMINAL_STATES",
    "WORKFLOW_TASK_TERMINAL_STATES",
    "TaskHandle",
    "TaskSendOptions",
    "TaskSendResult",
    "TaskSendError",
    "TaskSendErrorCode",
    "TaskSendPayload",
    "RetryPolicy",
    "ExceptionMapper",
    "BrokerResult",
    "BrokerOperationError",
    "BrokerErrorCode",
    "DatabasePing",
    "WorkerPong",
    "WorkerStateSnapshot",
    "ValidationReport",
    "MultipleValidationErrors",
    "WorkflowValidationError",
    "WorkflowContextMissingIdError",
    "RecoveryConfig",
    "WorkerResilienceConfig",
    "WorkerRecoveryConfig",
    "INFRASTRUCTURE_RESILIENT_FLAG",
    "HookRegistry",
    "JobRecovery",
    "JobInterrupted",
    "WorkerRecovered",
    "JobRecoveryResult",
    "FailureReason",
    "WorkerUtils",
    "SweepStaleWorkersOptions",
    "SweepStaleWorkersResult",
    "ActiveWorker",
    "recover_stuck_workflows",
    "recover_stuck_workflows_sync",
    "PostgresBroker",
    "Worker",
    "WorkerConfig",
]

WORKFLOW_NAMES = [
    "WorkflowSpec",
    "WorkflowDefinition",
    "TaskNode",
    "SubWorkflowNode",
    "AnyNode",
    "NodeKey",
    "OnError",
    "SuccessPolicy",
    "SuccessCase",
    "WorkflowContext",
    "WorkflowMeta",
    "SubWorkflowSummary",
    "WorkflowHandle",
    "WorkflowTaskInfo",
    "WorkflowStatus",
    "WorkflowTaskStatus",
    "WORKFLOW_TERMINAL_STATES",
    "WORKFLOW_TASK_TERMINAL_STATES",
    "HandleResult",
    "HandleOperationError",
    "HandleErrorCode",
    "WorkflowStartResult",
    "WorkflowStartError",
    "WorkflowStartErrorCode",
    "WorkflowValidationError",
    "WorkflowContextMissingIdError",
    "slugify",
    "from_node",
    "start_workflow",
    "start_workflow_async",
    "pause_workflow",
    "pause_workflow_sync",
    "resume_workflow",
    "resume_workflow_sync",
]

PATHS = [
    ("horsies.core.models.queues", "CustomQueueConfig"),
    ("horsies.core.models.queues", "QueueMode"),
    ("horsies.core.models.recovery", "RecoveryConfig"),
    ("horsies.core.models.tasks", "BUILTIN_CODE_REGISTRY"),
    ("horsies.core.models.task_pg", "TaskModel"),
    ("horsies.core.errors", "HorsiesError"),
    ("horsies.core.codec.serde", "serialize_error_payload"),
    ("horsies.core.types.result", "is_ok"),
    ("horsies.core.exception_mapper", "validate_error_code_string"),
    ("horsies.core.brokers.postgres", "PostgresBroker"),
    ("horsies.core.task_decorator", "TaskFunction"),
]


@each("name", NAMES)
def test_t02_root_names(name: str) -> None:
    assert hasattr(horsies, name)
    assert name in horsies.__all__


@each("name", WORKFLOW_NAMES)
def test_f01_names_of_workflows(name: str) -> None:
    assert hasattr(horsies, name)
    assert name in horsies.__all__


def test_t02_every_exported_name_exists() -> None:
    assert [name for name in horsies.__all__ if not hasattr(horsies, name)] == []


@each(("module", "name"), PATHS)
def test_t03_module_paths(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_the_names_that_are_imported_later_are_the_same_objects() -> None:
    from horsies.core.worker.config import WorkerConfig
    from horsies.core.worker.service import Worker

    assert horsies.Worker is Worker and horsies.WorkerConfig is WorkerConfig
    assert {"Worker", "WorkerConfig"} <= set(dir(horsies))
    with pytest.raises(AttributeError, match="no attribute 'Wroker'"):
        horsies.Wroker  # noqa: B018


def test_t01_recovery_config_is_the_same_object_in_both_places() -> None:
    from horsies.core.models.recovery import RecoveryConfig

    assert RecoveryConfig is horsies.RecoveryConfig


def test_l01_status_values_equal_their_names() -> None:
    assert [status.value for status in TaskStatus] == [status.name for status in TaskStatus]
    assert len(TaskStatus) == 7 and isinstance(TaskStatus.PENDING, str)


def test_l02_terminal_states() -> None:
    terminal = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED}
    assert terminal == TASK_TERMINAL_STATES and isinstance(TASK_TERMINAL_STATES, frozenset)
    assert {status for status in TaskStatus if status.is_terminal} == terminal


def test_f20_f21_terminal_states_of_workflows() -> None:
    assert {status.name for status in WorkflowStatus if not status.is_terminal} == {"PENDING", "RUNNING", "PAUSED"}
    assert {status.name for status in WorkflowTaskStatus if status.is_terminal} == {"COMPLETED", "FAILED", "SKIPPED"}
