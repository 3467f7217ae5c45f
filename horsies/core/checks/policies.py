"""Phase 5: mappers and default codes, checked once more because a dict can change after its first check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from horsies.core.checks.subject import Subject
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, SourceLocation
from horsies.core.exception_mapper import default_code_problems, is_reserved, mapper_problems


def policies(subject: Subject) -> Iterator[HorsiesError]:
    """The errors of mappers and default codes."""
    app, config = subject.app, subject.app.config
    yield from _mapper_errors(config.exception_mapper, config.default_unhandled_error_code, "AppConfig", app.location)
    for task in app.tasks.values():
        owner = f"task {task.task_name!r}"
        yield from _mapper_errors(task.exception_mapper, task.default_unhandled_error_code, owner, task.location)


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
