"""Phases 2 to 4 of the check (M-20), which ask nobody: the modules of an app can be imported, its workflows can be
built, its schedules fit.

`advice` yields the warnings: things that work, but probably not as intended. They are looked for only if there are no
errors. `live.py` checks what is in the database.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from horsies.core import app_workflows, discovery, errors
from horsies.core.models import codes
from horsies.core.models.tasks import OutcomeCode
from horsies.core.models.workflow import SubWorkflowNode, TaskNode, WorkflowDefinition, WorkflowSpec
from horsies.core.scheduler.payloads import schedule_problems
from horsies.core.tasks.definition import TaskDefinition

if TYPE_CHECKING:
    from horsies.core.app import Horsies

Definition = type[WorkflowDefinition[Any]]
_RETRIED = ", ".join(sorted(codes.RETRY_ELIGIBLE))


@dataclass
class CheckedApp:
    """An app under check, and its modules."""

    app: Horsies

    @cached_property
    def discovered(self) -> list[ModuleType]:
        """The modules that the app names. They are imported by then."""
        return [discovery.import_entry(entry) for entry in self.app.get_discovered_task_modules()]

    @cached_property
    def own_module(self) -> ModuleType | None:
        """The module that made the app, unless it is one of the discovered modules: a program of one file has no
        others."""
        place = self.app.location
        if place is None:
            return None
        found = [module for module in list(sys.modules.values()) if getattr(module, "__file__", None) == place.file]
        return next((module for module in found if module not in self.discovered), None)

    @property
    def modules(self) -> Iterator[ModuleType]:
        yield from self.discovered
        if self.own_module is not None:
            yield self.own_module


def imports(subject: CheckedApp) -> Iterator[errors.HorsiesError]:
    """Phase 2: every discovered module can be imported, and every task's types can be resolved."""
    report = errors.ValidationReport(phase="imports")
    subject.app.collect_imports(report)
    for task in subject.app.tasks.values():
        try:
            _ = task.codec
        except errors.HorsiesError as error:
            report.add(error)
    yield from report


def definitions_of(app: Horsies) -> list[Definition]:
    """The definitions whose nodes run tasks of this app."""
    return [definition for definition in _concrete(WorkflowDefinition) if _belongs(app, definition, set())]


def definitions(subject: CheckedApp) -> Iterator[errors.HorsiesError]:
    """Phase 3.1: every definition has a key, and one with nodes is a valid workflow. (If two have the same key, the
    second is refused when it is defined.)"""
    for definition in definitions_of(subject.app):
        if not definition.definition_key or not definition.takes_parameters():
            yield from _errors_of(definition, subject.app)


def builders(subject: CheckedApp) -> Iterator[errors.HorsiesError]:
    """Phase 3.2: every builder gives a sound workflow, sends suppressed (F-91)."""
    with type(subject.app).loading():
        for builder in subject.app.get_workflow_builders():
            yield from _check_builder(builder)


def undecorated(subject: CheckedApp) -> Iterator[errors.CheckWarning]:
    """Functions of the modules that return a `WorkflowSpec` and are no builders (F-92). They may be helpers, so this
    is only a warning."""
    for module in subject.modules:
        for fn in vars(module).values():
            if not _looks_like_a_builder(module, fn) or hasattr(fn, app_workflows.BUILDER_MARK):
                continue
            yield errors.CheckWarning(
                f"{fn.__qualname__} returns a WorkflowSpec, but is not marked as a builder, so no check builds it",
                code=errors.ErrorCode.WORKFLOW_CHECK_UNDECORATED_BUILDER,
                location=errors.SourceLocation.from_function(fn),
                help_text="decorate it with @app.workflow_builder(), with cases=[{...}] if it takes arguments; "
                "a helper that others call needs nothing, and --allow HRS-030 leaves this out",
            )


def schedules(subject: CheckedApp) -> Iterator[errors.HorsiesError]:
    """Phase 4: every schedule names a task, a queue and a time zone that exist, and arguments that the task takes
    (S-04). Disabled ones as well: they are meant to be enabled again."""
    config = subject.app.config.schedule
    for schedule in () if config is None else config.schedules:
        yield from schedule_problems(subject.app, schedule)


def advice(subject: CheckedApp) -> Iterator[errors.CheckWarning]:
    """All warnings."""
    yield from undecorated(subject)
    yield from useless_retry_codes(subject.app.tasks.values())


def useless_retry_codes(tasks: Collection[TaskDefinition[Any, Any]]) -> Iterator[errors.CheckWarning]:
    """Built-in codes in `auto_retry_for` that never cause a retry (HRS-217). A policy that several tasks share may list
    what only one of them can end with. Which codes of their own the functions return is not known here."""
    limited = [task.options.retry_policy for task in tasks if task.options.timeout_ms is not None]
    for task in tasks:
        policy = task.options.retry_policy
        for code in sorted(policy.codes & codes.BUILTIN_CODE_REGISTRY.keys() if policy else ()):
            if code not in codes.RETRY_ELIGIBLE:
                why, hint = "a task that ends with this code is never retried", f"of the built-in codes: {_RETRIED}"
            elif code == OutcomeCode.TASK_TIMEOUT and policy not in limited:
                why, hint = "the task has no time limit", "@app.task(..., timeout_ms=...)"
            else:
                continue
            yield errors.CheckWarning(
                f"task {task.task_name!r}: auto_retry_for lists {code}, but {why}",
                code=errors.ErrorCode.CHECK_RETRY_CODE_NEVER_SEEN,
                location=task.location,
                help_text=hint,
            )


def _concrete(kind: Definition) -> Iterator[Definition]:
    """The definitions that are meant to be built, without those that are only base classes."""
    for definition in kind.__subclasses__():
        below = list(_concrete(definition))
        yield from below
        is_template = not definition.definition_key and (below or not definition.nodes())
        if not is_template:
            yield definition


def _belongs(app: Horsies, definition: Definition, seen: set[Definition]) -> bool:
    if definition in seen:
        return False
    seen.add(definition)
    return any(
        node.fn.app is app
        if isinstance(node, TaskNode)
        else isinstance(node, SubWorkflowNode) and _belongs(app, node.workflow_def, seen)
        for node in definition.nodes()
    )


def _errors_of(definition: Definition, app: Horsies) -> Iterator[errors.HorsiesError]:
    try:
        definition.build(app)
    except errors.MultipleValidationErrors as several:
        yield from several.report
    except errors.HorsiesError as error:
        yield error


def _check_builder(builder: app_workflows.WorkflowBuilder) -> Iterator[errors.HorsiesError]:
    signature = inspect.signature(builder.fn)
    if builder.cases is None:
        if problem := _binding_problem(signature, {}):
            yield _finding(
                builder,
                errors.ErrorCode.WORKFLOW_CHECK_CASES_REQUIRED,
                f"needs arguments to be checked: {problem}",
                "@app.workflow_builder(cases=[{...}])",
            )
        else:
            yield from _build(builder, {}, "")
        return
    for number, case in enumerate(builder.cases):
        why = f"a case must be a dict of arguments by name, not {type(case).__name__}"
        is_case = isinstance(case, dict) and all(isinstance(name, str) for name in case)
        if problem := _binding_problem(signature, case) if is_case else why:
            text = f"has cases[{number}], which does not fit its parameters: {problem}"
            yield _finding(builder, errors.ErrorCode.WORKFLOW_CHECK_CASE_INVALID, text)
        else:
            yield from _build(builder, case, f" with cases[{number}]")


def _binding_problem(signature: inspect.Signature, case: dict[str, Any]) -> str | None:
    try:
        signature.bind(**case)
    except TypeError as problem:
        return str(problem)
    return None


def _build(builder: app_workflows.WorkflowBuilder, case: dict[str, Any], which: str) -> Iterator[errors.HorsiesError]:
    code = errors.ErrorCode.WORKFLOW_CHECK_BUILDER_EXCEPTION
    try:
        spec = builder.fn(**case)
    except errors.HorsiesError as error:
        yield _finding(builder, code, f"builds an invalid workflow{which}").with_note(error.format_rust_style())
    except (Exception, SystemExit) as problem:
        text = f"raised {type(problem).__name__}{which}{': ' + str(problem) if str(problem) else ''}"
        yield _finding(builder, code, text, location=errors.SourceLocation.of_exception(problem))
    else:
        if inspect.iscoroutine(spec):
            spec.close()  # nobody will await it
        if not isinstance(spec, WorkflowSpec):
            yield _finding(builder, code, f"returned {type(spec).__name__}{which}, not a WorkflowSpec")


def _finding(
    builder: app_workflows.WorkflowBuilder,
    code: errors.ErrorCode,
    text: str,
    help_text: str | None = None,
    location: errors.SourceLocation | None = None,
) -> errors.WorkflowValidationError:
    return errors.WorkflowValidationError(
        f"workflow builder {builder.name} {text}", code=code, location=location or builder.location, help_text=help_text
    )


def _looks_like_a_builder(module: ModuleType, fn: Any) -> bool:
    if not isinstance(fn, FunctionType) or fn.__module__ != module.__name__:
        return False
    try:
        returns = typing.get_type_hints(fn).get("return")
    except Exception:  # annotations that cannot be resolved now are compared as text
        returns = str(getattr(fn, "__annotations__", {}).get("return", "")).rpartition(".")[2]
        return str(returns).startswith("WorkflowSpec")
    return (typing.get_origin(returns) or returns) is WorkflowSpec
