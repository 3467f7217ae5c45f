"""The tree of startup errors, and how they are shown.

    HorsiesError                      code, message, location, notes, help_text
    ├── ConfigurationError            (also ValueError)   HRS-2xx
    ├── TaskDefinitionError           (also TypeError)    HRS-1xx
    ├── RegistryError                                     HRS-3xx
    ├── WorkflowValidationError       (also ValueError)   HRS-0xx
    ├── CheckWarning                                      reported by `horsies check`; nothing refuses to start
    └── MultipleValidationErrors      (also ValueError)   several of the above, in a ValidationReport
        └── MultipleWorkflowErrors    (also WorkflowValidationError)

Mistakes at definition time are exceptions; those found in one phase are collected and raised together. Outcomes at run
time are values instead (`types/result.py`, `models/tasks.py`).
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Any, ClassVar, Self

from horsies.core.text import visible, visible_lines

_URL_PASSWORD = re.compile(r"""(://[^\s:/@'"]*:)[^\s'"]*@""")
_BOLD, _CYAN, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[0m"
_HEADLINES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m"}


class ErrorCode(StrEnum):
    """HRS codes: 001-099 workflows, 100-199 task definitions, 200-299 configuration, 300-399 the registry. Each has a
    meaning; the table in docs/checks.md is made from these."""

    _value_: str
    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        code = str.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    WORKFLOW_NO_NAME = "HRS-001", "a workflow without a name"
    WORKFLOW_NO_NODES = "HRS-002", "a workflow without nodes"
    WORKFLOW_INVALID_NODE_ID = "HRS-003", "a node id that is too long or has invalid characters"
    WORKFLOW_DUPLICATE_NODE_ID = "HRS-004", "two nodes with the same id, or the same node twice"
    WORKFLOW_NO_ROOT_TASKS = "HRS-005", "every node waits for another, so none can start"
    WORKFLOW_INVALID_DEPENDENCY = "HRS-006", "a node waits for one that is not part of the workflow"
    WORKFLOW_CYCLE_DETECTED = "HRS-007", "nodes wait for each other in a circle"
    WORKFLOW_INVALID_ARGS_FROM = (
        "HRS-008",
        "`args_from` or `from_node` names something that the node does not wait for, or that is not a node",
    )
    WORKFLOW_INVALID_CTX_FROM = "HRS-009", "`workflow_ctx_from` names something that the node does not wait for"
    WORKFLOW_CTX_PARAM_MISSING = "HRS-010", "`workflow_ctx_from` for a task without a parameter `workflow_ctx`"
    WORKFLOW_INVALID_OUTPUT = "HRS-011", "the output is not one of the nodes"
    WORKFLOW_INVALID_SUCCESS_POLICY = (
        "HRS-012",
        "a success policy without cases, with an empty case, or with nodes of another workflow",
    )
    WORKFLOW_INVALID_JOIN = (
        "HRS-013",
        "an invalid join, a `min_success` that does not fit it, or a parameter without default that may get no value",
    )
    WORKFLOW_UNRESOLVED_QUEUE = "HRS-014", "a node in an unknown queue"
    WORKFLOW_UNRESOLVED_PRIORITY = "HRS-015", "a priority outside 1 to 100"
    WORKFLOW_NO_DEFINITION_KEY = "HRS-016", "a workflow without a `definition_key`"
    WORKFLOW_DUPLICATE_DEFINITION_KEY = "HRS-017", "two definitions with the same `definition_key`"
    WORKFLOW_SUBWORKFLOW_APP_MISSING = (
        "HRS-018",
        "a workflow with sub-workflows, but without an app that could build them",
    )
    WORKFLOW_INVALID_KWARG_KEY = "HRS-019", "an argument of a node that its task does not accept"
    WORKFLOW_MISSING_REQUIRED_PARAMS = "HRS-020", "a required parameter without a value"
    WORKFLOW_KWARGS_ARGS_FROM_OVERLAP = "HRS-021", "an argument that is given twice, as a value and as a result"
    WORKFLOW_SUBWORKFLOW_PARAMS_REQUIRE_BUILD_WITH = "HRS-022", "parameters for a child workflow that takes none"
    WORKFLOW_SUBWORKFLOW_BUILD_WITH_BINDING = (
        "HRS-023",
        "parameters that `build_with` of a child workflow does not accept, or an invalid `build_with`",
    )
    WORKFLOW_ARGS_FROM_TYPE_MISMATCH = (
        "HRS-024",
        "a parameter whose type does not match the result it gets, or a map over something that is not a list",
    )
    WORKFLOW_OUTPUT_TYPE_MISMATCH = "HRS-025", "an output of another type than the definition declares"
    WORKFLOW_POSITIONAL_ARGS_NOT_SUPPORTED = "HRS-026", "positional arguments for a node"
    WORKFLOW_CHECK_CASES_REQUIRED = "HRS-027", "a workflow builder with parameters and without `cases`"
    WORKFLOW_CHECK_CASE_INVALID = "HRS-028", "a case that does not fit the parameters of its builder"
    WORKFLOW_CHECK_BUILDER_EXCEPTION = (
        "HRS-029",
        "a workflow builder that raises an exception or returns an invalid workflow",
    )
    WORKFLOW_CHECK_UNDECORATED_BUILDER = (
        "HRS-030",
        "a function that returns a `WorkflowSpec` and is not marked as a builder",
    )
    WORKFLOW_KWARGS_NOT_SERIALIZABLE = "HRS-031", "an argument of a node that cannot be written as JSON"
    WORKFLOW_INVALID_ID = "HRS-032", "a workflow id that is not a UUID"

    TASK_NO_RETURN_TYPE = "HRS-100", "a task function without a return type"
    TASK_INVALID_RETURN_TYPE = "HRS-101", "a return type that is not `TaskResult[T, TaskError]`"
    TASK_INVALID_OPTIONS = (
        "HRS-102",
        "an unknown task option, an invalid value of one, or a `ctx` that cannot be filled in",
    )
    TASK_INVALID_QUEUE = "HRS-103", "an unknown queue, or no queue where one is required"
    TASK_PREDECORATED_NOT_SUPPORTED = (
        "HRS-104",
        "a function that is already a task, is wrapped by another decorator, or is not a plain function",
    )
    TASK_UNSUPPORTED_RESULT_TYPE = (
        "HRS-105",
        "a type that cannot be encoded as JSON, or that does not exist at run time",
    )

    CONFIG_INVALID_QUEUE_MODE = "HRS-200", "queues that do not fit the queue mode"
    CONFIG_INVALID_CLUSTER_CAP = "HRS-201", "a cluster cap that is not positive, or that is combined with prefetching"
    CONFIG_INVALID_PREFETCH = "HRS-202", "prefetching and claim leases that do not fit together"
    BROKER_INVALID_URL = "HRS-203", "a database URL that cannot be used"
    CONFIG_INVALID_RECOVERY = "HRS-204", "recovery settings that do not fit together"
    CONFIG_INVALID_SCHEDULE = "HRS-205", "an invalid schedule, or a scheduler without schedules"
    CLI_INVALID_ARGS = (
        "HRS-206",
        "a command line that cannot be understood, a module that is not found, or one without exactly one app",
    )
    WORKER_INVALID_LOCATOR = "HRS-207", "a locator that is not one, or that names something other than an app"
    CONFIG_INVALID_RESILIENCE = "HRS-208", "resilience settings that do not fit together"
    CONFIG_INVALID_EXCEPTION_MAPPER = "HRS-209", "an invalid exception mapper or default error code"
    MODULE_EXEC_ERROR = "HRS-210", "a module that fails on import"
    BROKER_INIT_FAILED = "HRS-211", "the database does not answer"
    CHECK_RESERVED_CODE_COLLISION = "HRS-212", "a mapper or a default that uses a built-in error code"
    CHILD_HOOK_INVALID = "HRS-214", "an invalid child start hook, or an invalid hook around tasks"
    CONFIG_INVALID = "HRS-215", "any other invalid setting"
    CHECK_RETRY_CODE_NEVER_SEEN = "HRS-217", "a code in `auto_retry_for` that never causes a retry"
    CHECK_WAITING_UNREADABLE = "HRS-218", "waiting tasks whose arguments the current code cannot read"
    CHECK_WITHOUT_SESSION = "HRS-219", "a transaction pooler without `session_database_url`: what would listen polls"
    OTHER_PACKAGE_INSTALLED = (
        "HRS-221",
        "the package `horsies` is installed beside `horsies-pg`: another project, or this one under its former name",
    )
    LIBPQ_MISSING = "HRS-222", "psycopg cannot load libpq, the client library of PostgreSQL"

    TASK_NOT_REGISTERED = "HRS-300", "a task that is not registered"
    TASK_DUPLICATE_NAME = "HRS-301", "two tasks with the same name"


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
        """The innermost frame that belongs neither to horsies nor to a library that calls it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _is_machinery(frame):
            frame = frame.f_back
        return cls.from_frame(frame) if frame is not None else None

    @classmethod
    def of_exception(cls, exc: BaseException) -> SourceLocation | None:
        """Where in the user's code the exception came from: the deepest frame that is not part of the machinery."""
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
    if frame.f_code.co_filename.startswith("<frozen "):
        return True  # a part of Python itself, such as os.environ
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if getattr(frame.f_globals.get("main"), "__module__", "") == "horsies.cli.main":
        return True  # the console script; a mistake on the command line has no place in a file
    return package in {"horsies", "pydantic", "pydantic_core", "importlib", "typing", "runpy", "typer", "click"}


class HorsiesError(Exception):
    """A mistake that is found before anything runs, with the place where it was made."""

    severity: ClassVar[str] = "error"

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

    def format_rust_style(self, use_colors: bool = False) -> str:
        """Headline, place with its source line, notes and help; parts without data are left out. What the texts contain
        cannot be obeyed by a terminal, nor pass for another part."""
        title = f"{self.severity}[{self.code}]:" if self.code else f"{self.severity}:"
        lines = [_paint(title, _HEADLINES[self.severity], use_colors) + f" {visible_lines(self.message, ' ' * 4)}"]
        if self.location is not None:
            lines += _source_lines(self.location, use_colors)
        note, help_ = (_paint(f"  = {name}:", _BOLD, use_colors) for name in ("note", "help"))
        lines += [f"{note} {visible_lines(text, ' ' * 10)}" for text in self.notes]
        if self.help_text:
            lines += [help_, " " * 6 + visible_lines(self.help_text, " " * 6)]
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


def _source_lines(location: SourceLocation, use_colors: bool) -> list[str]:
    place = visible(str(location))
    text = linecache.getline(location.file, location.line).rstrip()
    if not text.strip():
        return [_paint(f"  --> {place}", _CYAN, use_colors)]
    text = visible_lines(_URL_PASSWORD.sub(r"\1***@", text))  # source lines may contain a password too
    number = str(location.line)
    gutter = " " * len(number)
    start = len(text) - len(text.lstrip())
    marker = " " * start + "^" * (len(text) - start)
    arrow = _paint(f"{gutter} --> {place}", _CYAN, use_colors)
    return [arrow, f"{gutter} |", f"{number} | {text}", f"{gutter} | {marker}"]


def _paint(text: str, color: str, use_colors: bool) -> str:
    return f"{color}{text}{_RESET}" if use_colors else text


class ConfigurationError(HorsiesError, ValueError):
    """A setting is wrong."""


def misuse(
    message: str, help_text: str | None = None, *, code: ErrorCode = ErrorCode.CONFIG_INVALID, of: Any = None
) -> ConfigurationError:
    """The error for a wrong call, with its place in the user's code: the function that it is about, or the call."""
    location = SourceLocation.from_function(of) or SourceLocation.of_caller()
    return ConfigurationError(message, code=code, location=location, help_text=help_text)


class TaskDefinitionError(HorsiesError, TypeError):
    """A task is declared in a way that cannot work."""


class RegistryError(HorsiesError):
    """A name is registered twice, or not at all."""


class WorkflowValidationError(HorsiesError, ValueError):
    """A workflow's graph cannot work."""


class CheckWarning(HorsiesError):
    """Something that works, but probably not as intended. `horsies check` reports it; nothing refuses to start because
    of it."""

    severity = "warning"


class WorkflowContextMissingIdError(RuntimeError):
    """A workflow context was asked for a node that has no id."""


@dataclass(slots=True)
class ValidationReport:
    """The errors of one phase."""

    phase: str = "validation"
    errors: list[HorsiesError] = field(default_factory=list)

    def add(self, error: HorsiesError) -> None:
        """Collect one error; an error that contains several is unpacked."""
        if isinstance(error, MultipleValidationErrors):
            self.errors.extend(error.report.errors)
        else:
            self.errors.append(error)

    def has_errors(self) -> bool:
        return bool(self.errors)

    @property
    def severity(self) -> str:
        """The severity of the worst error."""
        return "warning" if self.errors and all(isinstance(error, CheckWarning) for error in self.errors) else "error"

    def raise_if_any(self) -> None:
        """Raise a single error unchanged, several as `MultipleValidationErrors`; do nothing if there are none."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise MultipleValidationErrors(self)

    def format_rust_style(self, use_colors: bool = False) -> str:
        blocks = [error.format_rust_style(use_colors) for error in self.errors]
        if len(blocks) > 1:
            title = _paint(f"{self.severity}:", _HEADLINES[self.severity], use_colors)
            blocks.append(f"{title} {len(blocks)} problems in {self.phase}")
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

    def format_rust_style(self, use_colors: bool = False) -> str:
        return self.report.format_rust_style(use_colors)


class MultipleWorkflowErrors(MultipleValidationErrors, WorkflowValidationError):
    """Several findings about one workflow."""
