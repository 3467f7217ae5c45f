"""Codes in `auto_retry_for` that nothing can produce (HRS-217).

The codes that a task can end with are known as far as the library defines them: the built-in codes, those of the
mappers, and the default. What the function itself returns is known only if its source shows it (`returned.py`). If it
does not, any code of the user's own is possible, and only likely misspellings are reported. A policy that several tasks
share is judged by all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from horsies.core.checks import returned
from horsies.core.definition import TaskDefinition
from horsies.core.errors import CheckWarning, ErrorCode
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY, RETRY_ELIGIBLE, OperationalErrorCode, OutcomeCode

AnyTask = TaskDefinition[Any, Any]

_TIMEOUT = OutcomeCode.TASK_TIMEOUT.value
_UNHANDLED = OperationalErrorCode.UNHANDLED_EXCEPTION.value
# A child may die in any task, and any function may return something that is no result.
_ALWAYS = frozenset({OperationalErrorCode.WORKER_CRASHED.value, OperationalErrorCode.TASK_EXCEPTION.value})
_ALIKE = 0.8


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes that some tasks can end with, and whether these are all."""

    known: frozenset[str]
    are_all: bool


def problems(tasks: Iterable[AnyTask]) -> Iterator[CheckWarning]:
    """The listed codes that never cause a retry."""
    for sharing in _by_policy(tasks):
        policy = sharing[0].options.retry_policy
        codes = codes_of(sharing)
        for code in sorted(policy.codes if policy else ()):
            if why := _why_never(code, codes, sharing):
                yield _warning(code, *why, sharing)


def codes_of(tasks: list[AnyTask]) -> Codes:
    """The codes that these tasks can end with, as far as they are known."""
    said = [returned.codes(task.fn) for task in tasks]
    known = {code for task in tasks for code in _given_by_the_library(task)}
    return Codes(
        known=frozenset(known.union(*(codes for codes in said if codes is not None))),
        are_all=all(codes is not None for codes in said),
    )


def _given_by_the_library(task: AnyTask) -> Iterator[str]:
    yield from _ALWAYS
    if task.options.timeout_ms is not None:
        yield _TIMEOUT
    yield from task.exception_mapper.values()
    yield from (code for kind, code in task.app_exception_mapper.items() if kind not in task.exception_mapper)
    yield task.default_unhandled_error_code or task.app_default_unhandled_error_code


def _by_policy(tasks: Iterable[AnyTask]) -> list[list[AnyTask]]:
    found: dict[str, list[AnyTask]] = {}
    for task in tasks:
        if task.options.retry_policy is not None:
            found.setdefault(task.options.retry_policy.model_dump_json(), []).append(task)
    return list(found.values())


def _why_never(code: str, codes: Codes, sharing: list[AnyTask]) -> tuple[str, str] | None:
    """The reason and the remedy; None if the code is possible."""
    if code in BUILTIN_CODE_REGISTRY and code not in RETRY_ELIGIBLE:
        return "a task that ends with this code is never retried", f"of the built-in codes: {_shown(RETRY_ELIGIBLE)}"
    if code in codes.known:
        return None
    if code == _TIMEOUT:
        return "the task has no time limit", "@app.task(..., timeout_ms=...)"
    if code == _UNHANDLED:
        default = sharing[0].default_unhandled_error_code or sharing[0].app_default_unhandled_error_code
        return f"exceptions without a mapping get the code {default}", f"list {default} instead"
    likely = _likely(code, codes.known if codes.are_all else codes.known | _mentioned(sharing))
    hint = f"did you mean {likely}?" if likely else "map an exception to it: exception_mapper={...: '" + code + "'}"
    if codes.are_all:
        return "the function never returns this code, and no mapper produces it", hint
    is_mentioned = code in _mentioned(sharing)
    return ("nothing produces this code, but a similar one exists", hint) if likely and not is_mentioned else None


def _mentioned(tasks: list[AnyTask]) -> frozenset[str]:
    """The texts in the modules of the tasks, except those that the policies list."""
    return frozenset().union(*(returned.texts_of_module(task.fn) for task in tasks))


def _likely(code: str, known: Iterable[str]) -> str | None:
    """A known code that this one may be a misspelling of."""
    return next((other for other in sorted(known) if _is_alike(code, other)), None)


def _is_alike(code: str, other: str) -> bool:
    """Whether the two differ in one word by a few letters. HTTP_502 and HTTP_503, or DB_ERROR and IO_ERROR, differ on
    purpose."""
    if code.replace("_", "") == other.replace("_", ""):
        return True
    ours, theirs = code.split("_"), other.split("_")
    if len(ours) != len(theirs) or _digits(code) != _digits(other):
        return False
    pairs = [(one, two) for one, two in zip(ours, theirs, strict=True) if one != two]
    return len(pairs) == 1 and SequenceMatcher(None, *pairs[0]).ratio() >= _ALIKE


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


def _shown(codes: Iterable[str]) -> str:
    return ", ".join(sorted(codes))


def _warning(code: str, why: str, hint: str, sharing: list[AnyTask]) -> CheckWarning:
    names = [repr(task.task_name) for task in sharing]
    who = f"task {names[0]}" if len(names) == 1 else f"tasks {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
    return CheckWarning(
        f"{who}: auto_retry_for lists {code}, but {why}",
        code=ErrorCode.CHECK_RETRY_CODE_NEVER_SEEN,
        location=returned.place_of_text(sharing[0].fn, code) or sharing[0].location,
        help_text=hint,
    )
