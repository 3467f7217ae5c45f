"""TaskResult, TaskError, the code families and the retry policy (T-25 to T-31, T-70, T-71, T-75, T-76, T-81)."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter

from horsies import (
    ContractCode,
    OperationalErrorCode,
    OutcomeCode,
    RetrievalCode,
    RetryPolicy,
    SubWorkflowError,
    SubWorkflowSummary,
    TaskError,
    TaskResult,
    WorkflowStatus,
)
from horsies.core.exception_mapper import validate_error_code_string
from horsies.core.models.tasks import BUILTIN_CODE_REGISTRY, RETRY_ELIGIBLE, TaskOptions
from tests.each import each

OK: TaskResult[int | None, TaskError] = TaskResult(ok=3)
ERR: TaskResult[int, TaskError] = TaskResult(err=TaskError(error_code="NO_STOCK"))


def test_t25_either_ok_or_err() -> None:
    for wrong in ({}, {"ok": 1, "err": TaskError()}, {"ok": None, "err": TaskError()}):
        with pytest.raises(ValueError):
            TaskResult(**wrong)


def test_t25_none_is_a_success() -> None:
    nothing: TaskResult[None, TaskError] = TaskResult(ok=None)
    assert nothing.is_ok() and nothing.ok_value is None and nothing.unwrap() is None


def test_t25_members() -> None:
    assert (OK.is_ok(), OK.is_err(), OK.ok, OK.err, OK.ok_value, OK.unwrap()) == (True, False, 3, None, 3, 3)
    error = TaskError(error_code="NO_STOCK")
    assert (ERR.is_ok(), ERR.is_err(), ERR.ok, ERR.err) == (False, True, None, error)
    assert ERR.err_value == ERR.unwrap_err() == error
    for wrong in (lambda: OK.err_value, OK.unwrap_err, lambda: ERR.ok_value, ERR.unwrap):
        with pytest.raises(ValueError):
            wrong()


def test_t25_results_do_not_change_and_can_be_copied() -> None:
    with pytest.raises(AttributeError):
        OK._ok = 4  # type: ignore[misc]
    for result in (OK, ERR):
        assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result
    assert OK != ERR and hash(OK) == hash(TaskResult(ok=3)) and repr(OK) == "TaskResult(ok=3)"


def test_t25_results_match() -> None:
    match OK:
        case TaskResult(err=None, ok=value):
            assert value == 3
        case _:
            pytest.fail("no match")


def test_t28_every_field_is_optional() -> None:
    assert TaskError().model_dump() == {"error_code": None, "message": None, "data": None, "exception": None}


@each("member", BUILTIN_CODE_REGISTRY.values())
def test_t28_built_in_codes_keep_their_identity(member: Any) -> None:
    text = TaskError(error_code=member).model_dump_json()
    assert json.loads(text)["error_code"] == {"__builtin_task_code__": member.value}
    assert TaskError.model_validate_json(text).error_code is member
    with pytest.raises(ValueError, match=type(member).__name__):
        TaskError(error_code=member.value)


@each("member", BUILTIN_CODE_REGISTRY.values())
def test_t28_a_dumped_error_can_be_validated_again(member: Any) -> None:
    error = TaskError(error_code=member, message="no", data={"left": 0})
    for dumped in (error.model_dump(), error.model_dump(mode="json"), {**error.model_dump(exclude_none=True)}):
        assert dumped["error_code"] == {"__builtin_task_code__": member.value}
        assert TaskError.model_validate(dumped) == error and TaskError(**dumped).error_code is member
    summary: SubWorkflowSummary[Any] = SubWorkflowSummary(status=WorkflowStatus.FAILED)
    nested = SubWorkflowError(error_code=member, sub_workflow_id="w", sub_workflow_summary=summary)
    assert SubWorkflowError.model_validate(nested.model_dump()) == nested


def test_t28_user_codes_are_plain_strings() -> None:
    text = TaskError(error_code="NO_STOCK").model_dump_json()
    assert json.loads(text)["error_code"] == "NO_STOCK"
    back = TaskError.model_validate_json(text).error_code
    assert back == "NO_STOCK" and type(back) is str


def test_t28_other_enums_are_refused() -> None:
    class Mine(enum.StrEnum):
        NO_STOCK = "NO_STOCK"

    with pytest.raises(ValueError, match="Mine"):
        TaskError(error_code=Mine.NO_STOCK)


def test_t28_unknown_marked_codes_are_refused() -> None:
    for code in ({"__builtin_task_code__": "NEW"}, {"__builtin_task_code__": []}, {"other": 1}, 5):
        with pytest.raises(ValueError):
            TaskError.model_validate({"error_code": code})


def test_t28_an_exception_becomes_a_dict() -> None:
    try:
        raise KeyError("k")
    except KeyError as exc:
        error = TaskError(exception=exc)  # type: ignore[arg-type]
    assert error.exception is not None
    assert {key: error.exception[key] for key in ("type", "module", "message")} == {
        "type": "KeyError",
        "module": "builtins",
        "message": "'k'",
    }
    assert 'raise KeyError("k")' in error.exception["traceback"]


def test_t87_tracebacks_are_bounded() -> None:
    error = TaskError(exception=ValueError("x" * 100_000))  # type: ignore[arg-type]
    assert error.exception is not None and len(json.dumps(error.exception)) < 50_000


def test_t29_sub_workflow_errors_come_back_as_such() -> None:
    summary = SubWorkflowSummary(status=WorkflowStatus.FAILED, total_tasks=2, failed_tasks=1, error_summary="one")
    error = SubWorkflowError(
        error_code=OutcomeCode.SUBWORKFLOW_FAILED, sub_workflow_id="w", sub_workflow_summary=summary
    )
    assert isinstance(error, TaskError)
    assert SubWorkflowError.model_validate_json(error.model_dump_json()) == error


def test_t102_results_can_be_parameters() -> None:
    adapter = TypeAdapter(TaskResult[int, TaskError])
    for result in (TaskResult(ok=3), ERR):
        assert adapter.validate_json(adapter.dump_json(result)) == result
        assert adapter.validate_python(result, strict=True) == result
    for wrong in ('{"ok":"x"}', '{"ok":1,"err":{}}', "{}", "[]", '{"okay":1}'):
        with pytest.raises(ValueError):
            adapter.validate_json(wrong)


def test_t70_families() -> None:
    families = {
        OperationalErrorCode: "UNHANDLED_EXCEPTION TASK_EXCEPTION WORKER_CRASHED BROKER_ERROR WORKER_RESOLUTION_ERROR "
        "WORKER_SERIALIZATION_ERROR RESULT_DESERIALIZATION_ERROR WORKFLOW_ENQUEUE_FAILED SUBWORKFLOW_LOAD_FAILED "
        "ROW_SET_ASIDE",
        ContractCode: "RETURN_TYPE_MISMATCH PYDANTIC_HYDRATION_ERROR WORKFLOW_CTX_MISSING_ID",
        RetrievalCode: "WAIT_TIMEOUT WAIT_INTERRUPTED TASK_NOT_FOUND WORKFLOW_NOT_FOUND RESULT_NOT_AVAILABLE "
        "RESULT_NOT_READY",
        OutcomeCode: "TASK_CANCELLED TASK_EXPIRED TASK_TIMEOUT WORKFLOW_PAUSED WORKFLOW_FAILED WORKFLOW_CANCELLED "
        "UPSTREAM_SKIPPED SUBWORKFLOW_FAILED WORKFLOW_SUCCESS_CASE_NOT_MET WORKFLOW_EXPIRED",
    }
    for family, names in families.items():
        assert [member.name for member in family] == names.split()
        assert all(member.value == member.name and isinstance(member, str) for member in family)
    assert len(BUILTIN_CODE_REGISTRY) == sum(len(names.split()) for names in families.values())
    assert all(BUILTIN_CODE_REGISTRY[member.value] is member for family in families for member in family)


def test_t70_which_built_in_codes_can_be_retried() -> None:
    assert {"UNHANDLED_EXCEPTION", "TASK_EXCEPTION", "WORKER_CRASHED", "TASK_TIMEOUT"} == RETRY_ELIGIBLE


@each("code", ["A", "NO_STOCK", "HTTP_502"])
def test_t71_good_codes(code: str) -> None:
    assert validate_error_code_string(code, field_name="f") == code


@each("code", ["", "a", "No_Stock", "1A", "_A", "A-B", "A\n", "ValueError", "requests.Timeout", 5])
def test_t71_bad_codes_name_the_field(code: Any) -> None:
    with pytest.raises(ValueError, match="my_field"):
        validate_error_code_string(code, field_name="my_field")


def test_t71_exception_names_get_a_hint() -> None:
    with pytest.raises(ValueError, match="exception_mapper"):
        validate_error_code_string("ConnectionError", field_name="f")


def policy(**fields: Any) -> RetryPolicy:
    return RetryPolicy(**{"auto_retry_for": ["BUSY"], **fields})


def test_t75_defaults() -> None:
    plain = policy()
    assert (plain.max_retries, plain.intervals, plain.backoff_strategy, plain.jitter) == (
        3,
        [60, 300, 900],
        "fixed",
        True,
    )


def test_t75_shortcuts() -> None:
    fixed = RetryPolicy.fixed([1, 2], auto_retry_for=["BUSY"], jitter=False)
    assert (fixed.max_retries, fixed.intervals, fixed.backoff_strategy, fixed.jitter) == (2, [1, 2], "fixed", False)
    growing = RetryPolicy.exponential(5, max_retries=4, auto_retry_for=["BUSY"])
    assert (growing.max_retries, growing.intervals, growing.backoff_strategy) == (4, [5], "exponential")
    with pytest.raises(ValueError):
        fixed.max_retries = 5  # type: ignore[misc]


@each(
    "fields",
    [
        {"auto_retry_for": []},
        {"auto_retry_for": "BUSY"},
        {"auto_retry_for": ["busy"]},
        {"auto_retry_for": ["TimeoutError"]},
        {"auto_retry_for": [TimeoutError]},
        {"max_retries": 0, "intervals": []},
        {"max_retries": 21, "intervals": [1] * 21},
        {"max_retries": 2},
        {"intervals": [0, 1, 2]},
        {"intervals": [1, 2, 86_401]},
        {"backoff_strategy": "linear"},
        {"backoff_strategy": "exponential"},
        {"retries": 3},
    ],
)
def test_t76_violations_are_value_errors(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        policy(**fields)


def test_t76_auto_retry_for_is_required() -> None:
    with pytest.raises(ValueError):
        RetryPolicy()  # type: ignore[call-arg]


def test_t76_the_limits_are_valid() -> None:
    assert policy(max_retries=20, intervals=[86_400] * 20).max_retries == 20
    assert policy(max_retries=1, intervals=[1]).intervals == [1]


def test_t81_members_and_strings_are_equivalent() -> None:
    by_name = policy(auto_retry_for=["WORKER_CRASHED", "BUSY"])
    by_member = policy(auto_retry_for=[OperationalErrorCode.WORKER_CRASHED, "BUSY"])
    assert by_name == by_member and by_name.codes == {"WORKER_CRASHED", "BUSY"}


def test_t31_options_travel_as_compact_json() -> None:
    options = TaskOptions(policy(auto_retry_for=["TASK_TIMEOUT"], max_retries=1, intervals=[9]), 1500)
    text = options.to_json()
    assert text is not None and json.loads(text) == {
        "retry_policy": {
            "auto_retry_for": ["TASK_TIMEOUT"],
            "max_retries": 1,
            "intervals": [9],
            "backoff_strategy": "fixed",
            "jitter": True,
        },
        "timeout_ms": 1500,
    }
    assert " " not in text and TaskOptions.from_json(text) == options and options.max_retries == 1


def test_t31_no_options_are_null() -> None:
    assert TaskOptions().to_json() is None and TaskOptions.from_json(None) == TaskOptions() == TaskOptions.from_json(
        "{}"
    )
    assert TaskOptions().max_retries == 0


@each("text", ["", "{", "[]", '{"timeout_ms":"x"}', '{"timeout_ms":true}', '{"retry_policy":{}}', "5"])
def test_t31_broken_options_raise_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        TaskOptions.from_json(text)
