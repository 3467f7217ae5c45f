"""What is sent back: JSON, and refusals as `{"code", "message"}` (M-64). A handler raises a `Refusal`; one place turns
it into an answer, for programs or for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any

from starlette.responses import Response

from horsies.core.models.broker import BrokerErrorCode
from horsies.core.models.monitoring.tasks import MonitoringErrorCode, MonitoringQueryError
from horsies.core.text import json_text

JSON = "application/json"
DEEPEST = 100  # levels of an answer
_PLAIN = frozenset({type(None), str, int, float, bool})


@dataclass(frozen=True, slots=True)
class RefusalBody:
    """Why a request was refused: a word for programs, and a sentence for people."""

    code: str
    message: str


class Refusal(Exception):
    """A request that is not answered as it was meant."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

    def body(self) -> RefusalBody:
        return RefusalBody(self.code, self.message)


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """ASCII only, so that whatever a row contains stays text of JSON."""
    return Response(json_text(in_json(value)), status, headers, media_type=JSON)


def refusal_answer(refusal: Refusal) -> Response:
    return json_answer(refusal.body(), refusal.status, refusal.headers)


def in_json(value: Any, levels: int = DEEPEST) -> Any:
    """The value as dicts, lists, texts and numbers, with times as RFC 3339 in UTC (M-15), and `…` for what is nested
    too deeply to be read again. A workflow may have ten thousand nodes, so what most values are comes first."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if levels == 0:
        return "…"
    below = levels - 1
    if kind is tuple or kind is list:
        return [one if type(one) in _PLAIN else in_json(one, below) for one in value]
    if kind is datetime:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if (names := _fields_of(kind)) is not None:
        return {name: one if type(one := getattr(value, name)) in _PLAIN else in_json(one, below) for name in names}
    if isinstance(value, Enum):
        return in_json(value.value, below)
    if isinstance(value, Mapping):
        return {str(name): in_json(one, below) for name, one in value.items()}
    raise TypeError(f"{kind.__name__} has no JSON form")


@cache
def _fields_of(kind: type) -> tuple[str, ...] | None:
    """The fields of a record; None if it is none."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def unavailable(message: str) -> Refusal:
    """The database does not answer."""
    return Refusal(503, "DATABASE_UNAVAILABLE", message, {"Retry-After": "2"})


def not_answered(error: MonitoringQueryError) -> Refusal:
    """A query without an answer."""
    if error.code is MonitoringErrorCode.INVALID_ARGUMENT:
        return Refusal(422, error.code.value, error.message)
    return Refusal(503, error.code.value, error.message, {"Retry-After": "2"} if error.retryable else None)


def not_done(code: BrokerErrorCode, message: str, *, retryable: bool) -> Refusal:
    """An operation that the database did not make."""
    return Refusal(503, code.value, message, {"Retry-After": "2"} if retryable else None)
