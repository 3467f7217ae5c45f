"""The tree of startup errors, and how they are shown.

    HorsiesError                      code, message, location, notes, help_text
    ├── ConfigurationError            (also ValueError)   HRS-2xx
    ├── TaskDefinitionError           (also TypeError)    HRS-1xx
    ├── RegistryError                                     HRS-3xx
    ├── WorkflowValidationError       (also ValueError)   HRS-0xx
    └── MultipleValidationErrors      (also ValueError)   several of the above, in a ValidationReport
        └── MultipleWorkflowErrors    (also WorkflowValidationError)

Mistakes made at definition time are exceptions; the ones found in one phase are collected and raised together. Outcomes
at run time are values instead (`types/result.py`, `models/tasks.py`).
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Any, Self

_URL_PASSWORD = re.compile(r"""(://[^\s:/@'"]*:)[^\s'"]*@""")


class ErrorCode(StrEnum):
    """HRS codes: 001-099 workflows, 100-199 task definitions, 200-299 configuration, 300-399 the registry."""

    WORKFLOW_NO_NAME = "HRS-001"
    WORKFLOW_NO_NODES = "HRS-002"
    WORKFLOW_INVALID_NODE_ID = "HRS-003"
    WORKFLOW_DUPLICATE_NODE_ID = "HRS-004"
    WORKFLOW_NO_ROOT_TASKS = "HRS-005"
    WORKFLOW_INVALID_DEPENDENCY = "HRS-006"
    WORKFLOW_CYCLE_DETECTED = "HRS-007"
    WORKFLOW_INVALID_ARGS_FROM = "HRS-008"
    WORKFLOW_INVALID_CTX_FROM = "HRS-009"
    WORKFLOW_CTX_PARAM_MISSING = "HRS-010"
    WORKFLOW_INVALID_OUTPUT = "HRS-011"
    WORKFLOW_INVALID_SUCCESS_POLICY = "HRS-012"
    WORKFLOW_INVALID_JOIN = "HRS-013"
    WORKFLOW_UNRESOLVED_QUEUE = "HRS-014"
    WORKFLOW_UNRESOLVED_PRIORITY = "HRS-015"
    WORKFLOW_NO_DEFINITION_KEY = "HRS-016"
    WORKFLOW_DUPLICATE_DEFINITION_KEY = "HRS-017"
    WORKFLOW_SUBWORKFLOW_APP_MISSING = "HRS-018"
    WORKFLOW_INVALID_KWARG_KEY = "HRS-019"
    WORKFLOW_MISSING_REQUIRED_PARAMS = "HRS-020"
    WORKFLOW_KWARGS_ARGS_FROM_OVERLAP = "HRS-021"
    WORKFLOW_SUBWORKFLOW_PARAMS_REQUIRE_BUILD_WITH = "HRS-022"
    WORKFLOW_SUBWORKFLOW_BUILD_WITH_BINDING = "HRS-023"
    WORKFLOW_ARGS_FROM_TYPE_MISMATCH = "HRS-024"
    WORKFLOW_OUTPUT_TYPE_MISMATCH = "HRS-025"
    WORKFLOW_POSITIONAL_ARGS_NOT_SUPPORTED = "HRS-026"
    WORKFLOW_CHECK_CASES_REQUIRED = "HRS-027"
    WORKFLOW_CHECK_CASE_INVALID = "HRS-028"
    WORKFLOW_CHECK_BUILDER_EXCEPTION = "HRS-029"
    WORKFLOW_CHECK_UNDECORATED_BUILDER = "HRS-030"
    WORKFLOW_KWARGS_NOT_SERIALIZABLE = "HRS-031"
    WORKFLOW_INVALID_ID = "HRS-032"

    TASK_NO_RETURN_TYPE = "HRS-100"
    TASK_INVALID_RETURN_TYPE = "HRS-101"
    TASK_INVALID_OPTIONS = "HRS-102"
    TASK_INVALID_QUEUE = "HRS-103"
    TASK_PREDECORATED_NOT_SUPPORTED = "HRS-104"
    TASK_UNSUPPORTED_RESULT_TYPE = "HRS-105"

    CONFIG_INVALID_QUEUE_MODE = "HRS-200"
    CONFIG_INVALID_CLUSTER_CAP = "HRS-201"
    CONFIG_INVALID_PREFETCH = "HRS-202"
    BROKER_INVALID_URL = "HRS-203"
    CONFIG_INVALID_RECOVERY = "HRS-204"
    CONFIG_INVALID_SCHEDULE = "HRS-205"
    CLI_INVALID_ARGS = "HRS-206"
    WORKER_INVALID_LOCATOR = "HRS-207"
    CONFIG_INVALID_RESILIENCE = "HRS-208"
    CONFIG_INVALID_EXCEPTION_MAPPER = "HRS-209"
    MODULE_EXEC_ERROR = "HRS-210"
    BROKER_INIT_FAILED = "HRS-211"
    CHECK_RESERVED_CODE_COLLISION = "HRS-212"
    CHILD_HOOK_INVALID = "HRS-214"
    CONFIG_INVALID = "HRS-215"  # ours: a field no other code speaks for (payload policy, unknown names)

    TASK_NOT_REGISTERED = "HRS-300"
    TASK_DUPLICATE_NAME = "HRS-301"


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line in the user's code."""

    file: str
    line: int

    @classmethod
    def from_frame(cls, frame: FrameType) -> SourceLocation:
        return cls(frame.f_code.co_filename, frame.f_lineno)

    @classmethod
    def from_function(cls, fn: Any) -> SourceLocation | None:
        code = getattr(fn, "__code__", None)
        return cls(code.co_filename, code.co_firstlineno) if code is not None else None

    @classmethod
    def of_caller(cls) -> SourceLocation | None:
        """The innermost frame that is neither ours nor a library's that calls us."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _is_machinery(frame):
            frame = frame.f_back
        return cls.from_frame(frame) if frame is not None else None

    @classmethod
    def of_exception(cls, exc: BaseException) -> SourceLocation | None:
        """Where in the user's code the exception came from: the deepest frame that is not machinery."""
        found: SourceLocation | None = None
        step = exc.__traceback__
        while step is not None:
            if not _is_machinery(step.tb_frame):
                found = cls(step.tb_frame.f_code.co_filename, step.tb_lineno)
            step = step.tb_next
        if isinstance(exc, SyntaxError) and exc.filename and exc.lineno:
            return cls(exc.filename, exc.lineno)
        return found

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _is_machinery(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if getattr(frame.f_globals.get("main"), "__module__", "") == "horsies.cli.main":
        return True  # the console script: a mistake on the command line has no place in a file
    return package in {"horsies", "pydantic", "pydantic_core", "importlib", "typing", "runpy", "typer", "click"}


class HorsiesError(Exception):
    """A mistake that is found before anything runs, with the place where it was made."""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        location: SourceLocation | None = None,
        notes: list[str] | None = None,
        help_text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.location = location
        self.notes: list[str] = list(notes or [])
        self.help_text = help_text

    def with_note(self, note: str) -> Self:
        self.notes.append(note)
        return self

    def with_help(self, help_text: str) -> Self:
        self.help_text = help_text
        return self

    def with_location_from_frame(self, frame: FrameType) -> Self:
        self.location = SourceLocation.from_frame(frame)
        return self

    def format_rust_style(self) -> str:
        """Headline, place with its source line, notes and help; parts without data are left out."""
        head = f"error[{self.code}]: {self.message}" if self.code else f"error: {self.message}"
        lines = [head]
        if self.location is not None:
            lines += _source_lines(self.location)
        lines += [f"  = note: {_indent(note, 10)}" for note in self.notes]
        if self.help_text:
            lines += ["  = help:", "      " + _indent(self.help_text, 6)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.format_rust_style()

    def __reduce__(self) -> Any:
        # Exceptions are rebuilt from their args, which would lose the keyword-only fields.
        return _rebuild, (type(self), self.message, self.__dict__.copy())


def _rebuild(cls: type[HorsiesError], message: str, state: dict[str, Any]) -> HorsiesError:
    error = cls.__new__(cls, message)
    error.args = (message,)
    error.__dict__.update(state)
    return error


def _source_lines(location: SourceLocation) -> list[str]:
    text = linecache.getline(location.file, location.line).rstrip()
    if not text.strip():
        return [f"  --> {location}"]
    text = _URL_PASSWORD.sub(r"\1***@", text)  # a password in the source is still a password
    number = str(location.line)
    gutter = " " * len(number)
    start = len(text) - len(text.lstrip())
    marker = " " * start + "^" * (len(text) - start)
    return [f"{gutter} --> {location}", f"{gutter} |", f"{number} | {text}", f"{gutter} | {marker}"]


def _indent(text: str, width: int) -> str:
    return text.replace("\n", "\n" + " " * width)


class ConfigurationError(HorsiesError, ValueError):
    """A setting is wrong."""


class TaskDefinitionError(HorsiesError, TypeError):
    """A task is declared in a way that cannot work."""


class RegistryError(HorsiesError):
    """A name is registered twice, or not at all."""


class WorkflowValidationError(HorsiesError, ValueError):
    """A workflow's graph cannot work."""


class WorkflowContextMissingIdError(RuntimeError):
    """A workflow context was asked for a node that has no id."""


@dataclass(slots=True)
class ValidationReport:
    """The errors of one phase."""

    phase: str = "validation"
    errors: list[HorsiesError] = field(default_factory=list)

    def add(self, error: HorsiesError) -> None:
        """Collect one error; one that holds several is unpacked."""
        if isinstance(error, MultipleValidationErrors):
            self.errors.extend(error.report.errors)
        else:
            self.errors.append(error)

    def has_errors(self) -> bool:
        return bool(self.errors)

    def raise_if_any(self) -> None:
        """Raise the one error as it is, several as `MultipleValidationErrors`, none not at all."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise MultipleValidationErrors(self)

    def format_rust_style(self) -> str:
        blocks = [error.format_rust_style() for error in self.errors]
        if len(blocks) > 1:
            blocks.append(f"error: {len(blocks)} problems in {self.phase}")
        return "\n\n".join(blocks)

    def __iter__(self) -> Iterator[HorsiesError]:
        return iter(self.errors)

    def __len__(self) -> int:
        return len(self.errors)

    def __str__(self) -> str:
        return self.format_rust_style()


class MultipleValidationErrors(HorsiesError, ValueError):
    """Several errors of one phase, each in `report`."""

    def __init__(self, report: ValidationReport) -> None:
        super().__init__(
            f"{len(report)} problems in {report.phase}", code=report.errors[0].code if report.errors else None
        )
        self.report = report

    @property
    def errors(self) -> list[HorsiesError]:
        return self.report.errors

    def format_rust_style(self) -> str:
        return self.report.format_rust_style()


class MultipleWorkflowErrors(MultipleValidationErrors, WorkflowValidationError):
    """Several findings about one workflow."""
