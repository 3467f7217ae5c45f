"""How a query ends: with an answer, or with the reason why there is none; and how answers become JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from pydantic_core import to_jsonable_python

from horsies.core.types.result import Err, Ok

T = TypeVar("T")


def to_jsonable(value: Any) -> Any:
    """The value as dicts, lists, texts and numbers, ready for `json.dumps`."""
    return to_jsonable_python(value)


class MonitoringErrorCode(StrEnum):
    """Why there is no answer."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    QUERY_TIMEOUT = "QUERY_TIMEOUT"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"


@dataclass(frozen=True, slots=True)
class MonitoringQueryError:
    """A query without an answer; `retryable` if the same query may succeed a moment later."""

    code: MonitoringErrorCode
    message: str
    retryable: bool = False


MonitoringResult: TypeAlias = Ok[T] | Err[MonitoringQueryError]
