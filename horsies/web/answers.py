"""What is sent back: JSON, and refusals as `{"code", "message"}` (M-64). A handler raises a `Refusal`; one place turns
it into an answer, for programs or for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any

from starlette.responses import Response

from horsies.core.models.broker import BrokerErrorCode
from horsies.core.models.monitoring.tasks import MonitoringErrorCode, MonitoringQueryError
from horsies.core.text import json_text

JSON = "application/json"


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


def in_json(value: Any) -> Any:
    """The value as dicts, lists, texts and numbers, with times as RFC 3339 in UTC (M-15)."""
    if isinstance(value, Enum):
        return in_json(value.value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(name): in_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [in_json(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: in_json(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form")


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
