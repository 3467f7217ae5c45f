"""Which error code an exception gets when it leaves a task function: by the nearest of its classes, first in the task's
mapper, then in the app's, then the task's default code, then the app's. This module also defines the format of error
codes that users may configure.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from horsies.core.errors import ErrorCode
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY, OperationalErrorCode

ExceptionMapper: TypeAlias = dict[type[BaseException], str]
Problem: TypeAlias = tuple[str, ErrorCode]
DEFAULT_UNHANDLED_ERROR_CODE = OperationalErrorCode.UNHANDLED_EXCEPTION.value
_USER_CODE = re.compile(r"[A-Z][A-Z0-9_]*")
_EXCEPTION_NAME = re.compile(r"[A-Za-z_.]*[a-z][A-Za-z0-9_]*(Error|Exception|Warning|Interrupt|Exit|Timeout)")


def validate_error_code_string(code: str, *, field_name: str) -> str:
    """The code, if it is valid; otherwise a `ValueError` that names the field."""
    if not isinstance(code, str):
        raise ValueError(f"{field_name}: an error code is a string, not {type(code).__name__}")
    if _EXCEPTION_NAME.fullmatch(code):
        raise ValueError(
            f"{field_name}: {code!r} looks like the name of an exception class; "
            "give an error code and map the exception to it with exception_mapper"
        )
    if not _USER_CODE.fullmatch(code):
        raise ValueError(f"{field_name}: error code {code!r} must match ^[A-Z][A-Z0-9_]*$")
    return code


def is_reserved(code: str) -> bool:
    """Whether the code belongs to the library."""
    return code in BUILTIN_CODE_REGISTRY


def mapper_problems(mapper: object) -> Iterator[Problem]:
    """The mistakes in an exception mapper, one sentence each."""
    if not isinstance(mapper, Mapping):
        text = "an exception mapper is a dict of exception class to error code"
        yield text, ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER
        return
    for key, code in mapper.items():
        if not (isinstance(key, type) and issubclass(key, BaseException)):
            yield f"exception_mapper: {key!r} is not an exception class", ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER
            continue
        yield from code_problems(code, field_name=f"exception_mapper[{key.__name__}]")


def code_problems(code: Any, *, field_name: str) -> Iterator[Problem]:
    """The mistakes in a code that the user configured for exceptions."""
    try:
        validate_error_code_string(code, field_name=field_name)
    except ValueError as problem:
        yield str(problem), ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER
        return
    if is_reserved(code):
        text = f"{field_name}: {str(code)!r} is a built-in code; choose one of your own"
        yield text, ErrorCode.CHECK_RESERVED_CODE_COLLISION


def default_code_problems(code: Any) -> Iterator[Problem]:
    """The same as `code_problems`, but the documented default is allowed too."""
    if code != DEFAULT_UNHANDLED_ERROR_CODE:
        yield from code_problems(code, field_name="default_unhandled_error_code")


def resolve(
    exc: BaseException,
    *,
    task_mapper: Mapping[type[BaseException], str],
    app_mapper: Mapping[type[BaseException], str],
    task_default: str | None,
    app_default: str,
) -> str:
    """The code for an exception."""
    code = nearest(type(exc), task_mapper) or nearest(type(exc), app_mapper)
    return code or task_default or app_default


def nearest(kind: type[BaseException], mapper: Mapping[type[BaseException], str]) -> str | None:
    """The code of the class, or of the base class that comes first in its method resolution order."""
    return next((mapper[base] for base in kind.__mro__ if base in mapper), None) if mapper else None


def is_expected(exc: BaseException, *mappers: Mapping[type[BaseException], str]) -> bool:
    """Whether a mapper has a code for the exception."""
    return any(nearest(type(exc), mapper) is not None for mapper in mappers)
