"""The public interface of the codec: JSON texts in and out, with failures as values.

`TaskCodec` belongs to a task and handles its arguments and its result by declared type. The functions below work
without a task, on plain JSON values; none of them raises, and `serialize_error_payload` always returns a text.
`sanitize_text` and `can_be_stored` know which texts PostgreSQL accepts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import JsonValue

from horsies.core.codec import arguments, older, shapes
from horsies.core.models.codes import BUILTIN_CODE_FAMILIES, BuiltInTaskCode, ContractCode, OperationalErrorCode
from horsies.core.models.tasks import BUILTIN_KEY, TaskError, TaskResult
from horsies.core.types import Err, Ok, Result

T = TypeVar("T")
_UNREADABLE = OperationalErrorCode.RESULT_DESERIALIZATION_ERROR
_UNWRITABLE = OperationalErrorCode.WORKER_SERIALIZATION_ERROR
_CONSTANT = json.dumps({"err": {"error_code": {BUILTIN_KEY: _UNWRITABLE.value}, "message": "unwritable result"}})
_PLAIN_RESULT = shapes.ResultCodec(JsonValue)
_PLAIN_VALUE = shapes.list_shape([JsonValue], lambda index: "value")


@dataclass(frozen=True, slots=True)
class SerializationError:
    """A value that cannot be encoded or a text that cannot be decoded; `code` is the error code of a result made from
    it."""

    message: str
    code: BuiltInTaskCode = OperationalErrorCode.WORKER_SERIALIZATION_ERROR


class TaskCodec:
    """Arguments and result of one task, by declared type. A function that `returns_value` returns the ok value itself,
    not a `TaskResult` (X-01)."""

    __slots__ = ("arguments", "ok_type", "result", "returns_value", "signature")

    def __init__(
        self,
        signature: arguments.Signature,
        ok_type: Any,
        *,
        returns_value: bool = False,
        accepts: Sequence[older.OlderSignature] = (),
    ) -> None:
        self.signature = signature
        self.ok_type = ok_type
        self.returns_value = returns_value
        self.arguments = older.AcceptingCodec(signature, accepts) if accepts else arguments.ArgumentsCodec(signature)
        self.result = shapes.ResultCodec(ok_type)


def args_to_json(args: tuple[Any, ...] | list[Any]) -> Result[str, SerializationError]:
    """Positional arguments that are plain JSON values, as a JSON list."""
    return _attempt(lambda: _dump(list(args)))


def kwargs_to_json(kwargs: Mapping[str, Any]) -> Result[str, SerializationError]:
    """Keyword arguments that are plain JSON values, as a JSON object."""
    return _attempt(lambda: _dump(dict(kwargs)))


def dumps_json(value: Any) -> Result[str, SerializationError]:
    """A plain JSON value as text. NaN, Infinity, lone surrogates and other types are refused."""
    return _attempt(lambda: _dump(value))


def loads_json(text: str | None) -> Result[Any, SerializationError]:
    """The plain value of a JSON text; None if there is no text."""
    return _attempt(lambda: None if text is None else json.loads(text, parse_constant=_refuse_constant))


def task_result_from_json(
    text: str, codec: shapes.ResultCodec | None = None
) -> Result[TaskResult[Any, TaskError], SerializationError]:
    """A stored result, with its ok value decoded by the task's codec; without a codec it is plain JSON."""
    try:
        return Ok((codec or _PLAIN_RESULT).decode(text))
    except shapes.CodecError as problem:
        has_other_type = isinstance(problem, shapes.TypeMismatchError) and problem.first == "ok"
        code = ContractCode.PYDANTIC_HYDRATION_ERROR if has_other_type else _UNREADABLE
        return Err(SerializationError(str(problem), code))


def serialize_error_payload(tr: TaskResult[Any, TaskError]) -> str:
    """The JSON of an error result. Parts that cannot be encoded are replaced by a note."""
    for made_of in (_as_it_is, _presentable, _last_resort):
        try:
            return _PLAIN_RESULT.encode(made_of(tr))
        except Exception:  # whatever __str__ and properties of the user's objects raise
            continue
    return _CONSTANT


def sanitize_text(text: str) -> str:
    """The text without characters that a TEXT column refuses: NUL and lone surrogates become the replacement
    character."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def can_be_stored(text: object) -> bool:
    """Whether a column can store this: a text without NUL that can be encoded as UTF-8."""
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        return False
    return True


def _attempt(produce: Callable[[], T]) -> Result[T, SerializationError]:
    try:
        return Ok(produce())
    except (shapes.CodecError, ValueError, TypeError, RecursionError) as problem:
        return Err(SerializationError(str(problem)))


def _dump(value: Any) -> str:
    return _PLAIN_VALUE.encode((value,))[1:-1]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _as_it_is(tr: TaskResult[Any, TaskError]) -> TaskResult[Any, TaskError]:
    return tr


def _presentable(tr: TaskResult[Any, TaskError]) -> TaskResult[Any, TaskError]:
    """The same error with clean texts, and without data that cannot be encoded."""
    error = tr.err_value
    exception = json.loads(json.dumps(error.exception, default=str, skipkeys=True), parse_constant=str)
    writable = isinstance(dumps_json(error.data), Ok)
    presentable = TaskError(
        error_code=_clean(error.error_code),
        message=_clean(error.message),
        data=error.data if writable else {"unserializable": type(error.data).__name__},
        exception=_clean(exception),
    )
    return TaskResult(err=presentable)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, BUILTIN_CODE_FAMILIES) else sanitize_text(value)
    if isinstance(value, dict):
        return {sanitize_text(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _last_resort(tr: TaskResult[Any, TaskError]) -> TaskResult[Any, TaskError]:
    kind = "a result" if tr.err is None else f"an error with code {sanitize_text(str(tr.err.error_code))}"
    return TaskResult(err=TaskError(error_code=_UNWRITABLE, message=f"{kind} could not be written as JSON"))
