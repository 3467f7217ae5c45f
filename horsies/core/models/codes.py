"""The built-in error codes of tasks, in four families; importable from `models/tasks.py`."""

from enum import StrEnum
from typing import TypeAlias


class OperationalErrorCode(StrEnum):
    """Something broke while the task was handled."""

    UNHANDLED_EXCEPTION = "UNHANDLED_EXCEPTION"
    TASK_EXCEPTION = "TASK_EXCEPTION"
    WORKER_CRASHED = "WORKER_CRASHED"
    BROKER_ERROR = "BROKER_ERROR"
    WORKER_RESOLUTION_ERROR = "WORKER_RESOLUTION_ERROR"
    WORKER_SERIALIZATION_ERROR = "WORKER_SERIALIZATION_ERROR"
    RESULT_DESERIALIZATION_ERROR = "RESULT_DESERIALIZATION_ERROR"
    WORKFLOW_ENQUEUE_FAILED = "WORKFLOW_ENQUEUE_FAILED"
    SUBWORKFLOW_LOAD_FAILED = "SUBWORKFLOW_LOAD_FAILED"
    ROW_SET_ASIDE = "ROW_SET_ASIDE"


class ContractCode(StrEnum):
    """A value did not have its declared type."""

    RETURN_TYPE_MISMATCH = "RETURN_TYPE_MISMATCH"
    PYDANTIC_HYDRATION_ERROR = "PYDANTIC_HYDRATION_ERROR"
    WORKFLOW_CTX_MISSING_ID = "WORKFLOW_CTX_MISSING_ID"


class RetrievalCode(StrEnum):
    """The result could not be fetched; the code says nothing about the task itself."""

    WAIT_TIMEOUT = "WAIT_TIMEOUT"
    WAIT_INTERRUPTED = "WAIT_INTERRUPTED"
    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    WORKFLOW_NOT_FOUND = "WORKFLOW_NOT_FOUND"
    RESULT_NOT_AVAILABLE = "RESULT_NOT_AVAILABLE"
    RESULT_NOT_READY = "RESULT_NOT_READY"


class OutcomeCode(StrEnum):
    """The task or workflow ended without its own result."""

    TASK_CANCELLED = "TASK_CANCELLED"
    TASK_EXPIRED = "TASK_EXPIRED"
    TASK_TIMEOUT = "TASK_TIMEOUT"
    WORKFLOW_PAUSED = "WORKFLOW_PAUSED"
    WORKFLOW_FAILED = "WORKFLOW_FAILED"
    WORKFLOW_CANCELLED = "WORKFLOW_CANCELLED"
    UPSTREAM_SKIPPED = "UPSTREAM_SKIPPED"
    SUBWORKFLOW_FAILED = "SUBWORKFLOW_FAILED"
    WORKFLOW_SUCCESS_CASE_NOT_MET = "WORKFLOW_SUCCESS_CASE_NOT_MET"
    WORKFLOW_EXPIRED = "WORKFLOW_EXPIRED"


BuiltInTaskCode: TypeAlias = OperationalErrorCode | ContractCode | RetrievalCode | OutcomeCode

BUILTIN_CODE_FAMILIES = (OperationalErrorCode, ContractCode, RetrievalCode, OutcomeCode)
BUILTIN_CODE_REGISTRY: dict[str, BuiltInTaskCode] = {
    member.value: member for family in BUILTIN_CODE_FAMILIES for member in family
}

# The built-in codes whose listing in `auto_retry_for` can cause a retry.
RETRY_ELIGIBLE: frozenset[str] = frozenset(
    {
        OperationalErrorCode.UNHANDLED_EXCEPTION.value,
        OperationalErrorCode.TASK_EXCEPTION.value,
        OperationalErrorCode.WORKER_CRASHED.value,
        OutcomeCode.TASK_TIMEOUT.value,
    }
)
