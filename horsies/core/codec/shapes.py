"""Values to JSON and back, by declared type: the part of the codec that uses pydantic.

A `Shape` is one object or list whose members have declared types: the keyword arguments of a task, its positional
arguments, or its result (`ResultCodec`: `{"ok": …}` by its declared type or `{"err": {…}}`). Values are encoded only if
they fit their type strictly ("5" is not an int) and if the text can be decoded again. `find_unsendable` searches for
parts that would not survive as JSON: NaN, Infinity, text that is not Unicode, masked secrets. Decoding is as lenient as
JSON requires (a date is a string there). Nothing in the text names a class.
"""

import dataclasses
import math
import types
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

import pydantic
from pydantic_core import CoreSchema, ErrorDetails, PydanticSerializationError, core_schema

from horsies.core.models.tasks import SubWorkflowError, TaskError, TaskResult

Path = tuple[Any, ...]
Builder: typing.TypeAlias = Callable[[pydantic.GetCoreSchemaHandler], CoreSchema]
_NOT_FINITE = "NaN and Infinity cannot be sent"
_SECRET = "a secret would be stored masked; send a reference to it instead"
_NOT_TEXT = "the text contains lone surrogates, which are not valid Unicode"
_LEAVES = (str, bytes, int, float, Enum, type(None))

# Bytes travel as base64. NaN is written as NaN, so that it is found and refused. Models with a configuration of their
# own write null instead; `find_unsendable` finds those.
_CONFIG = pydantic.ConfigDict(
    ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants", hide_input_in_errors=True
)

_CORE_CONFIG = core_schema.CoreConfig(
    ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants", hide_input_in_errors=True
)

# This is what NaN, secrets and keys with lone surrogates look like in JSON.
_SUSPICIOUS = (b"NaN", b"Infinity", b"**********", "\ufffd".encode())
_MAX_SHOWN = 5
_NOT_JSON = "invalid-json-value"
_LONGEST_PLAIN = 4_000  # Python reads no number of more than 4,300 digits
_PLAIN_KINDS = {  # and what their schema says if nothing of the user's is in it
    **{kind: {"type", "metadata"} for kind in ("none", "bool", "int", "float", "str")},
    "nullable": {"type", "schema", "metadata"},
    "list": {"type", "items_schema", "metadata"},
}


class CodecError(Exception):
    """A value cannot be encoded, or a text cannot be decoded. The message never repeats the value."""


class TypeMismatchError(CodecError):
    """The value is not of the declared type; `first` is the name of the member."""

    def __init__(self, message: str, first: str = "") -> None:
        super().__init__(message)
        self.first = first


class Shape:
    """The members of one JSON object or list, each with its type. Built once, used for every value."""

    __slots__ = ("_is_plain", "_named", "_serialize", "_suspicious", "_validate_json", "_validate_python")

    def __init__(self, build: Builder, name_of: Callable[[Any], str] = str) -> None:
        adapter = adapter_of(build)
        self._validate_python = adapter.validator.validate_python
        self._validate_json = adapter.validator.validate_json
        self._serialize = adapter.serializer.to_json
        self._named = name_of
        self._is_plain = all(map(_is_plain, _members(adapter.core_schema)))
        self._suspicious = (*_SUSPICIOUS, b"null") if _holds_models(adapter.core_schema) else _SUSPICIOUS

    def check(self, value: Any) -> Any:
        """The value as its type defines it, if it fits strictly; otherwise a `TypeMismatchError`, or another
        `CodecError` where the type would allow any JSON."""
        try:
            return self._validate_python(value, strict=True)
        except pydantic.ValidationError as problem:
            raise self._mismatch(problem) from None
        except Exception as problem:
            raise _foreign(problem) from None

    def encode(self, value: Any) -> str:
        """The value as JSON. `TypeMismatchError` if it is of another type, `CodecError` if it cannot be encoded."""
        checked = self.check(value)
        data = self._dump(checked)
        if self._is_suspicious(data):
            self._refuse_unsendable(checked)
        if self._is_plain and len(data) < _LONGEST_PLAIN:
            return data.decode()
        try:
            # The text must be readable again: the sender finds that out, and not the worker.
            self._validate_json(data, by_alias=True, by_name=True)
        except pydantic.ValidationError as problem:
            raise CodecError(f"its JSON cannot be read back: {self._describe(problem)}") from None
        except Exception as problem:
            raise _foreign(problem) from None
        return data.decode()

    def decode(self, text: str, *, strict: bool | None = None) -> Any:
        """The value of a text. `TypeMismatchError` if it does not fit, another `CodecError` if it is not JSON."""
        try:
            return self._validate_json(text, strict=strict, by_alias=True, by_name=True)
        except pydantic.ValidationError as problem:
            details = problem.errors(include_url=False, include_input=False, include_context=False)
            if not details[0]["loc"] and details[0]["type"] in ("json_invalid", "json_type", "string_unicode"):
                raise CodecError(details[0]["msg"]) from None
            raise self._mismatch(problem) from None
        except UnicodeEncodeError:
            raise CodecError("Invalid JSON: lone surrogates") from None
        except Exception as problem:
            raise _foreign(problem) from None

    def _is_suspicious(self, data: bytes) -> bool:
        for sign in self._suspicious:  # noqa: SIM110  a generator costs more than the search, and every send passes here
            if sign in data:
                return True
        return False

    def _dump(self, checked: Any) -> bytes:
        try:
            return self._serialize(checked, round_trip=True, warnings="error")
        except (PydanticSerializationError, UnicodeError, ValueError):
            self._refuse_unsendable(checked)
        try:
            # The warning was about a value that is not of the type that its model declares. Reading it back decides
            # whether that matters.
            return self._serialize(checked, round_trip=True, warnings=False)
        except PydanticSerializationError as problem:
            raise CodecError(_why_not_written(problem)) from None
        except Exception as problem:
            raise _foreign(problem) from None

    def _refuse_unsendable(self, checked: Any) -> None:
        if found := find_unsendable(checked):
            path, problem = found
            raise CodecError(f"{self._path(path)}: {problem}")

    def _mismatch(self, problem: pydantic.ValidationError) -> CodecError:
        details = problem.errors(include_url=False, include_input=False, include_context=False)
        if any(detail["type"] == _NOT_JSON for detail in details):
            return CodecError(self._describe(problem))
        return TypeMismatchError(self._describe(problem), str(details[0]["loc"][0]) if details[0]["loc"] else "")

    def _describe(self, problem: pydantic.ValidationError) -> str:
        details = problem.errors(include_url=False, include_input=False, include_context=False)
        lines = [self._line(detail) for detail in details[:_MAX_SHOWN]]
        if len(details) > _MAX_SHOWN:
            lines.append(f"and {len(details) - _MAX_SHOWN} more")
        return "; ".join(lines)

    def _line(self, detail: ErrorDetails) -> str:
        text = detail["msg"]
        if detail["type"] == _NOT_JSON:
            text += "; annotate it to send other types (sets, dates, models and more)"
        return f"{self._path(detail['loc'])}: {text}" if detail["loc"] else text

    def _path(self, loc: Sequence[Any]) -> str:
        first, *rest = loc[:20]  # a path through two hundred lists helps nobody
        return self._named(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def object_shape(fields: Mapping[str, Any], *, others: Any = None) -> Shape:
    """A JSON object with these members, all optional; other members have the type `others`, or are refused."""
    return Shape(object_builder(fields, others))


def object_builder(fields: Mapping[str, Any], others: Any = None) -> Builder:
    """What the core schema of such an object is made by."""

    def build(handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.typed_dict_schema(
            {
                name: core_schema.typed_dict_field(handler.generate_schema(json_safe(kind)), required=False)
                for name, kind in fields.items()
            },
            extra_behavior="forbid" if others is None else "allow",
            extras_schema=None if others is None else handler.generate_schema(json_safe(others)),
            config=_CORE_CONFIG,  # an object does not take over the configuration around it
        )

    return build


def list_shape(kinds: Sequence[Any], name_of: Callable[[Any], str], *, last_repeats: bool = False) -> Shape:
    """A JSON list with one member of each kind and any number of the last; messages use `name_of(index)`."""
    return Shape(list_builder(kinds, last_repeats=last_repeats), name_of)


def list_builder(kinds: Sequence[Any], *, last_repeats: bool = False) -> Builder:
    """What the core schema of such a list is made by."""

    def build(handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.tuple_schema(
            [handler.generate_schema(json_safe(kind)) for kind in kinds],
            variadic_item_index=len(kinds) - 1 if last_repeats else None,
        )

    return build


class ResultCodec:
    """Encodes and decodes the results of one task."""

    __slots__ = ("_both", "_ok")

    def __init__(self, ok_type: Any) -> None:
        self._ok = object_shape({"ok": ok_type})
        # The fields tell the two kinds of error apart: neither accepts the fields of the other.
        self._both = object_shape({"ok": ok_type, "err": SubWorkflowError | TaskError})

    def check(self, value: Any) -> None:
        """`TypeMismatchError` if the ok value is not of the declared type, another `CodecError` if it cannot be
        encoded."""
        self._ok.check({"ok": value})

    def encode(self, result: TaskResult[Any, TaskError]) -> str:
        """The result as JSON. A `TypeMismatchError` means a value of the wrong type; any other `CodecError` means that
        it cannot be encoded."""
        if result.is_ok():
            return self._ok.encode({"ok": result.ok})
        return self._both.encode({"err": result.err})

    def decode(self, text: str) -> TaskResult[Any, TaskError]:
        """The result of a text. `TypeMismatchError.first` is "ok" if only the value does not fit."""
        sides = self._both.decode(text)
        if len(sides) != 1:
            raise CodecError("a result must have either ok or err")
        return TaskResult(ok=sides["ok"]) if "ok" in sides else TaskResult(err=sides["err"])


def json_safe(kind: Any) -> Any:
    """The annotation with every `Any` in it read as "a JSON value", so that no value changes its type."""
    try:
        if kind in _BARE:
            return _BARE[kind]
    except TypeError:
        pass  # an annotation that cannot be hashed
    origin, given = get_origin(kind), get_args(kind)
    if not given or origin is typing.Literal:
        return kind
    if origin is Annotated:
        return Annotated[(json_safe(given[0]), *given[1:])]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(json_safe(part) for part in given)]  # noqa: UP007
    if origin is dict:
        key = str if given[0] is Any else json_safe(given[0])
        return dict[key, json_safe(given[1])]  # type: ignore[valid-type, misc]
    if origin in (list, set, frozenset, tuple):
        return origin[tuple(part if part is Ellipsis else json_safe(part) for part in given)]
    return kind


_BARE: dict[Any, Any] = {
    Any: pydantic.JsonValue,
    object: pydantic.JsonValue,
    list: list[pydantic.JsonValue],
    typing.List: list[pydantic.JsonValue],  # noqa: UP006
    dict: dict[str, pydantic.JsonValue],
    typing.Dict: dict[str, pydantic.JsonValue],  # noqa: UP006
    tuple: tuple[pydantic.JsonValue, ...],
    typing.Tuple: tuple[pydantic.JsonValue, ...],  # noqa: UP006
}


def adapter_of(build: Builder) -> pydantic.TypeAdapter[Any]:
    class Members:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
            return build(handler)

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Members, config=_CONFIG)
    if not adapter.pydantic_complete:
        raise NameError("a model refers to a type that is not defined")
    return adapter


def _holds_models(schema: Any) -> bool:
    """Whether something in the schema has its own model configuration."""
    if isinstance(schema, dict):
        return schema.get("type") in ("model", "dataclass") or any(map(_holds_models, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_holds_models, schema))


def _members(schema: Any) -> Iterator[Any]:
    """What is in an object or list of ours; the whole if it is neither, as with types that contain themselves."""
    if schema["type"] == "tuple":
        yield from schema["items_schema"]
    elif schema["type"] == "typed-dict":
        for field in schema["fields"].values():
            yield field["schema"] if field.keys() <= {"type", "schema", "required", "metadata"} else field
        if "extras_schema" in schema:
            yield schema["extras_schema"]
    else:
        yield schema


def _is_plain(schema: Any) -> bool:
    """Whether everything in the schema is of a kind that is always read as it was written: no code or setting of the
    user's can make a difference. Only an int can have too many digits, so this is for texts that are not long."""
    kind = schema["type"]
    if not schema.keys() <= _PLAIN_KINDS.get(kind, set()):
        return False
    if kind == "nullable":
        return _is_plain(schema["schema"])
    return kind != "list" or _is_plain(schema["items_schema"])


def _why_not_written(problem: PydanticSerializationError) -> str:
    text = str(problem)
    if text.startswith("Unable to serialize unknown type"):
        return text
    if "invalid utf-8 sequence" in text:
        return (
            "bytes in a model of its own configuration need ser_json_bytes='base64' and val_json_bytes='base64' there"
        )
    return "it cannot be written as JSON"  # other texts come from the user's serializers and may contain anything


def _foreign(problem: Exception) -> CodecError:
    """Validators and serializers of the user can raise anything, with any text."""
    return CodecError(f"a validator or serializer raised {type(problem).__name__}")


def find_unsendable(value: Any) -> tuple[Path, str] | None:
    """Where the first such part is, and what is wrong with it; None if there is none."""
    seen: set[int] = set()
    pending: list[tuple[Path, Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        if problem := _problem(item):
            return path or ("value",), problem
        if isinstance(item, _LEAVES) or id(item) in seen:
            continue
        seen.add(id(item))
        children = list(_children(item))
        pending.extend(((*path, key), child) for key, child in reversed(children))
    return None


def _problem(item: Any) -> str | None:
    if isinstance(item, float) and not math.isfinite(item):
        return _NOT_FINITE
    if isinstance(item, str) and not _is_text(item):
        return _NOT_TEXT
    if isinstance(item, pydantic.Secret | pydantic.SecretStr | pydantic.SecretBytes):
        return _SECRET
    return None


def _is_text(item: str) -> bool:
    try:
        item.encode()
    except UnicodeEncodeError:
        return False
    return True


def _children(item: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(item, pydantic.BaseModel):
        yield from item.__dict__.items()
        yield from (item.model_extra or {}).items()
    elif dataclasses.is_dataclass(item) and not isinstance(item, type):
        yield from ((field.name, getattr(item, field.name, None)) for field in dataclasses.fields(item))
    elif isinstance(item, Mapping):
        for key, child in item.items():
            yield _shown(key), key
            yield _shown(key), child
    elif isinstance(item, list | tuple | set | frozenset | deque):
        yield from enumerate(item)


def _shown(key: Any) -> Any:
    return key if isinstance(key, int) or (isinstance(key, str) and _is_text(key)) else "[key]"
