"""`app.check()`: what can be known to be wrong before anything runs.

Errors of a phase are collected; a phase that fails is the last.
Phase 1, the configuration, is past once there is an app. Phase 3 is `workflow_checks.py`; phase 4 belongs to schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from horsies.core import workflow_checks
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, SourceLocation, ValidationReport
from horsies.core.exception_mapper import default_code_problems, is_reserved, mapper_problems
from horsies.core.types.result import Err

if TYPE_CHECKING:
    from horsies.core.app import Horsies


def check(app: Horsies, *, live: bool) -> list[HorsiesError]:
    """What is wrong with the app; nothing if it is sound."""
    phases = [imports_and_workflows, *workflow_checks.PHASES, policies, *([broker] if live else [])]
    for phase in phases:
        if errors := list(phase(app)):
            return errors
    return []


def imports_and_workflows(app: Horsies) -> Iterator[HorsiesError]:
    """Phases 2 and 3 together: what modules define when they are imported, workflows among it."""
    yield from imports(app)
    yield from workflow_checks.definitions(app)


def imports(app: Horsies) -> Iterator[HorsiesError]:
    """Phase 2: every discovered module can be imported, and every task's types can be resolved."""
    report = ValidationReport(phase="imports")
    app.collect_imports(report)
    for task in app.tasks.values():
        try:
            _ = task.codec
        except HorsiesError as error:
            report.add(error)
    yield from report


def policies(app: Horsies) -> Iterator[HorsiesError]:
    """Phase 5: mappers and default codes once more, since a dict can be changed after it was checked."""
    config = app.config
    yield from _mapper_errors(config.exception_mapper, config.default_unhandled_error_code, "AppConfig", None)
    for task in app.tasks.values():
        owner = f"task {task.task_name!r}"
        yield from _mapper_errors(task.exception_mapper, task.default_unhandled_error_code, owner, task.location)


def broker(app: Horsies) -> Iterator[HorsiesError]:
    """Phase 6, only live: the database answers."""
    answer = app.ping_database()
    if isinstance(answer, Err):
        yield ConfigurationError(
            f"the database does not answer: {answer.error.message}", code=ErrorCode.BROKER_INIT_FAILED
        )


def _mapper_errors(
    mapper: Mapping[type[BaseException], str], default: Any, owner: str, location: SourceLocation | None
) -> Iterator[HorsiesError]:
    for kind, code in mapper.items():
        for text in mapper_problems({kind: code}):
            yield _error(f"{owner}: {text}", code, location)
    if default is not None:
        for text in default_code_problems(default):
            yield _error(f"{owner}: {text}", default, location)


def _error(message: str, code: Any, location: SourceLocation | None) -> ConfigurationError:
    collides = isinstance(code, str) and is_reserved(code)
    kind = ErrorCode.CHECK_RESERVED_CODE_COLLISION if collides else ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER
    return ConfigurationError(message, code=kind, location=location)
