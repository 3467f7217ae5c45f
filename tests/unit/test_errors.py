"""The error tree and how it is shown (T-07, T-72, T-73, M-30)."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import sys
from pathlib import Path

import pytest

from horsies import ErrorCode, HorsiesError, MultipleValidationErrors, ValidationReport, WorkflowValidationError
from horsies.core.errors import CheckWarning, ConfigurationError, RegistryError, SourceLocation, TaskDefinitionError
from tests import hostile_support as hostile
from tests.each import each

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


@each(
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


def test_m30_colours_only_on_request(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("y = app.task()\n")
    place = SourceLocation(str(file), 1)
    error = HorsiesError("no name", code=ErrorCode.TASK_INVALID_OPTIONS, location=place, notes=["so"], help_text="do")
    coloured = error.format_rust_style(use_colors=True)
    assert coloured.startswith("\x1b[1;31merror[HRS-102]:\x1b[0m no name\n\x1b[36m  --> ")
    assert "\x1b[1m  = note:\x1b[0m so\n\x1b[1m  = help:\x1b[0m\n      do" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == error.format_rust_style() == str(error)
    report = ValidationReport("the check", [error, CheckWarning("odd")])
    many = MultipleValidationErrors(report)
    assert many.format_rust_style(use_colors=True) == report.format_rust_style(use_colors=True)
    assert "\x1b[1;33mwarning:\x1b[0m odd" in many.format_rust_style(use_colors=True)
    assert report.format_rust_style(use_colors=True).endswith("\x1b[1;31merror:\x1b[0m 2 problems in the check")
    assert "\x1b" not in report.format_rust_style()


def test_m30_what_an_error_contains_is_not_obeyed_and_forges_no_part(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("y = 'a\x1b[2Jb'\n")
    text = "a\x1b[8m\x9b\u202e\nerror[HRS-001]: forged\r\n  = help:"
    error = HorsiesError(text, location=SourceLocation(str(file), 1), notes=[text], help_text=text)
    for use_colors in (False, True):
        shown = error.format_rust_style(use_colors)
        assert hostile.obeyed(shown) == set()
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert [line for line in lines if line.startswith("error")] == ["error: a\\u001b[8m\\u009b\\u202e"]
        assert [line for line in lines if line.startswith("  = ")] == [f"  = note: {lines[0][7:]}", "  = help:"]
        assert "1 | y = 'a\\u001b[2Jb'" in lines


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


def test_m30_the_place_of_an_error_inside_python_is_the_line_that_called_it(tmp_path: Path) -> None:
    """Parts of Python are frozen into it, and have no file to look at."""
    file = tmp_path / "settings.py"
    file.write_text("import os\nurl = os.environ['NO_SUCH_VARIABLE']\n")
    with pytest.raises(KeyError) as raised:
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "settings"})
    assert SourceLocation.of_exception(raised.value) == SourceLocation(str(file), 2)
