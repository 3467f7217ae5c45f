"""The error tree and how it is shown (T-07, T-72, T-73, M-30)."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys

import pytest

from horsies import ErrorCode, HorsiesError, MultipleValidationErrors, ValidationReport, WorkflowValidationError
from horsies.core.errors import ConfigurationError, RegistryError, SourceLocation, TaskDefinitionError

FIXED_BY_CONTRACT = {
    "TASK_NO_RETURN_TYPE": 100,
    "TASK_INVALID_RETURN_TYPE": 101,
    "TASK_INVALID_OPTIONS": 102,
    "TASK_INVALID_QUEUE": 103,
    "TASK_PREDECORATED_NOT_SUPPORTED": 104,
    "TASK_UNSUPPORTED_RESULT_TYPE": 105,
    "CONFIG_INVALID_QUEUE_MODE": 200,
    "CONFIG_INVALID_CLUSTER_CAP": 201,
    "CONFIG_INVALID_PREFETCH": 202,
    "BROKER_INVALID_URL": 203,
    "CONFIG_INVALID_RECOVERY": 204,
    "CONFIG_INVALID_SCHEDULE": 205,
    "CLI_INVALID_ARGS": 206,
    "WORKER_INVALID_LOCATOR": 207,
    "CONFIG_INVALID_RESILIENCE": 208,
    "CONFIG_INVALID_EXCEPTION_MAPPER": 209,
    "MODULE_EXEC_ERROR": 210,
    "BROKER_INIT_FAILED": 211,
    "CHECK_RESERVED_CODE_COLLISION": 212,
    "CHILD_HOOK_INVALID": 214,
    "TASK_NOT_REGISTERED": 300,
    "TASK_DUPLICATE_NAME": 301,
    "WORKFLOW_NO_NAME": 1,
    "WORKFLOW_CYCLE_DETECTED": 7,
    "WORKFLOW_INVALID_ID": 32,
}


def test_t72_codes() -> None:
    for name, number in FIXED_BY_CONTRACT.items():
        assert ErrorCode[name] == f"HRS-{number:03}"
    assert len({code.value for code in ErrorCode}) == len(ErrorCode)


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (ConfigurationError, ValueError),
        (TaskDefinitionError, TypeError),
        (RegistryError, Exception),
        (WorkflowValidationError, ValueError),
        (MultipleValidationErrors, ValueError),
    ],
)
def test_t73_tree(kind: type[Exception], also: type[Exception]) -> None:
    assert issubclass(kind, HorsiesError) and issubclass(kind, also)


def test_t73_fields_have_defaults() -> None:
    error = HorsiesError("what")
    assert (error.message, error.code, error.location, error.notes, error.help_text) == ("what", None, None, [], None)


def test_m30_the_whole_form(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n\n    y = app.task()\n")
    error = (
        HorsiesError("no name", code=ErrorCode.TASK_INVALID_OPTIONS, location=SourceLocation(str(file), 3))
        .with_note("a first note")
        .with_note("a second\nwith two lines")
        .with_help("say\n@app.task('name')")
    )
    assert error.format_rust_style() == "\n".join(
        [
            "error[HRS-102]: no name",
            f"  --> {file}:3",
            "  |",
            "3 |     y = app.task()",
            "  |     ^^^^^^^^^^^^^^",
            "  = note: a first note",
            "  = note: a second",
            "          with two lines",
            "  = help:",
            "      say",
            "      @app.task('name')",
        ]
    )


def test_m30_parts_without_data_are_left_out() -> None:
    assert HorsiesError("what").format_rust_style() == "error: what"
    gone = HorsiesError("what", code=ErrorCode.MODULE_EXEC_ERROR, location=SourceLocation("/nowhere/x.py", 7))
    assert gone.format_rust_style() == "error[HRS-210]: what\n  --> /nowhere/x.py:7"
    assert str(gone) == gone.format_rust_style()


def test_m30_location_from_frame() -> None:
    frame = sys._getframe()
    error = HorsiesError("what").with_location_from_frame(frame)
    assert error.location is not None and error.location.file == __file__
    assert "with_location_from_frame(frame)" in str(error)


def test_m30_a_configuration_error_points_at_the_users_line() -> None:
    from horsies import RecoveryConfig

    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(HorsiesError) as raised:
        RecoveryConfig(check_interval_ms=1)
    assert raised.value.location == SourceLocation(__file__, line)


def test_m30_several_errors_are_separated_and_counted() -> None:
    report = ValidationReport("imports")
    assert not report.has_errors()
    report.raise_if_any()
    report.add(HorsiesError("one"))
    report.add(HorsiesError("two"))
    with pytest.raises(MultipleValidationErrors) as raised:
        report.raise_if_any()
    assert raised.value.report is report and len(report) == 2
    assert str(raised.value) == "error: one\n\nerror: two\n\nerror: 2 problems in imports"


def test_t07_one_error_is_raised_as_it_is_and_groups_are_unpacked() -> None:
    inner = ValidationReport("inner")
    inner.add(ConfigurationError("one"))
    with pytest.raises(ConfigurationError):
        inner.raise_if_any()
    inner.add(ConfigurationError("two"))
    outer = ValidationReport("outer")
    outer.add(MultipleValidationErrors(inner))
    outer.add(RegistryError("three"))
    assert [error.message for error in outer] == ["one", "two", "three"]


def test_t73_errors_survive_pickling_and_copying() -> None:
    error = ConfigurationError("what", code=ErrorCode.BROKER_INVALID_URL, notes=["n"], help_text="h")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is ConfigurationError and str(twin) == str(error)
        assert (twin.code, twin.notes, twin.help_text) == (error.code, ["n"], "h")
    report = ValidationReport("p", [error, error])
    assert str(pickle.loads(pickle.dumps(MultipleValidationErrors(report)))) == str(report)


def test_m30_syntax_errors_point_at_the_broken_line(tmp_path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("x = 1\ndef (:\n")
    with pytest.raises(SyntaxError) as raised:
        compile(file.read_text(), str(file), "exec")
    assert SourceLocation.of_exception(raised.value) == SourceLocation(str(file), 2)
