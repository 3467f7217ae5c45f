"""How a route of the JSON API is declared: its path, its parameters with types and words, the type of its answer, and
the function that answers. The same declaration reads the parameters of a request, becomes the OpenAPI document, and is
what the tests go through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.core.types import Ok
from horsies.web.answers import JSON, Refusal, not_answered
from horsies.web.dashboard import Dashboard

T = TypeVar("T")
REQUIRED: Any = ...
MOST_VALUES = 100
LONGEST_TEXT = 1_000
EVENTS = "text/event-stream"
_PATH_NAME = re.compile(r"\{(\w+)\}")
ANY_TEXT = "horsies_any_text"

Text: TypeAlias = Annotated[str, Field(max_length=LONGEST_TEXT)]
Texts: TypeAlias = Annotated[list[Text], Field(max_length=MOST_VALUES)]


class _AnyText(Convertor[str]):
    """A part of a path that may have slashes, and line breaks, in it."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor(ANY_TEXT, _AnyText())


def with_any_text(path: str, names: Collection[str]) -> str:
    """The path as the router reads it, if these of its parts may be any text."""
    return _PATH_NAME.sub(lambda part: f"{{{part[1]}:{ANY_TEXT}}}" if part[1] in names else part[0], path)


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the path, of the query, or of the body. One of the path has no slashes, unless it is
    `any_text`."""

    name: str
    type: Any
    doc: str
    default: Any = REQUIRED
    any_text: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it may be given several times in a query."""
        kind = self.type.__origin__ if get_origin(self.type) is Annotated else self.type
        return get_origin(kind) is list


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked, and by which request."""

    dashboard: Dashboard
    request: Request


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A route below `/api`. `answer` is the type of the JSON that it returns, or of each event of a stream. An endpoint
    with an `action` changes something."""

    method: Literal["GET", "POST"]
    path: str
    doc: str
    answer: Any
    ask: Callable[..., Awaitable[Any]]
    params: tuple[Param, ...] = ()
    action: str | None = None
    needs_tables: bool = True
    media_type: str = JSON

    @property
    def in_path(self) -> tuple[str, ...]:
        return tuple(_PATH_NAME.findall(self.path))

    @property
    def route(self) -> str:
        """The path as the router reads it."""
        return with_any_text(self.path, {param.name for param in self.params if param.any_text})

    @property
    def others(self) -> tuple[Param, ...]:
        """The parameters of the query or, for an action, of the body."""
        return tuple(param for param in self.params if param.name not in self.in_path)

    async def values(self, request: Request) -> dict[str, Any]:
        """The parameters of a request by name; raises a `Refusal` if one of them is wrong."""
        if self.action is None:
            return checked(model_of(self), {**self._query(request), **request.path_params})
        if request.scope["query_string"]:
            raise Refusal(422, "INVALID_ARGUMENT", "an action takes its parameters from the body, not from the query")
        body = await _body(request)
        if twice := sorted(body.keys() & set(self.in_path)):
            raise Refusal(422, "INVALID_ARGUMENT", f"{twice[0]} is in the path already")
        return checked(model_of(self), {**body, **request.path_params})

    def _query(self, request: Request) -> dict[str, Any]:
        lists = {param.name for param in self.params if param.is_list}
        given: dict[str, Any] = {}
        for name in request.query_params:
            values = request.query_params.getlist(name)
            if name in self.in_path:
                raise Refusal(422, "INVALID_ARGUMENT", f"{name} is in the path already")
            if name not in lists and len(values) > 1:
                raise Refusal(422, "INVALID_ARGUMENT", f"{_shown(name)}: given more than once")
            given[name] = values if name in lists else values[0]
        return given


@cache
def model_of(endpoint: Endpoint) -> type[BaseModel]:
    """The model that reads the parameters. A query has only texts; the types of a body must be right."""
    fields: dict[str, Any] = {
        param.name: (Annotated[param.type, Field(description=param.doc)], param.default) for param in endpoint.params
    }
    config = ConfigDict(extra="forbid", strict=endpoint.action is not None, hide_input_in_errors=True)
    return create_model("Parameters", __config__=config, **fields)


def checked(model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        read = model.model_validate(given)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(_shown(str(part)) for part in first["loc"])
        raise Refusal(422, "INVALID_ARGUMENT", f"{where}: {first['msg']}" if where else first["msg"]) from None
    return {name: getattr(read, name) for name in model.model_fields}


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of the body; no body is an empty one."""
    text = await request.body()
    if not text:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(415, "UNSUPPORTED_MEDIA_TYPE", f"a body must be JSON (Content-Type: {JSON})")
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "BAD_JSON", "the body is not JSON") from None
    if not isinstance(value, dict):
        raise Refusal(422, "INVALID_ARGUMENT", "the body must be a JSON object")
    return value


def _no_constant(word: str) -> Any:
    raise ValueError(word)


def _shown(name: str) -> str:
    """A name that somebody else has chosen."""
    return name if len(name) <= 60 else f"{name[:60]}…"


def answered(result: MonitoringResult[T | None]) -> T:
    """The answer of a query; raises a `Refusal` if there is none."""
    if not isinstance(result, Ok):
        raise not_answered(result.error)
    if result.value is None:
        raise Refusal(404, "NOT_FOUND", "nothing has this id")
    return result.value


def query(function: Callable[..., Awaitable[MonitoringResult[Any]]]) -> Callable[..., Awaitable[Any]]:
    """A function of `horsies.monitoring` as the answer of an endpoint, whose parameters are its own."""

    async def ask(asked: Asked, **values: Any) -> Any:
        if values.get("exact"):
            with asked.dashboard.place_for_exact():
                return answered(await function(asked.dashboard.broker, **values))
        return answered(await function(asked.dashboard.broker, **values))

    return ask
