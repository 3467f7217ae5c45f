"""What is known about a task: its function, its options, its codec. Sending and running build on it.

The codec is built when the task is defined. If an annotation names something that does not exist yet (a class further
down in the module), the codec is built at the first use; `app.check()` builds the codecs that are still missing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, get_args, get_origin

from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from horsies.core.codec import signature as signatures
from horsies.core.codec.serde import TaskCodec
from horsies.core.errors import ErrorCode, SourceLocation, TaskDefinitionError
from horsies.core.models.tasks import TaskError, TaskOptions, TaskResult
from horsies.core.producer.size import SizeGuard

P = ParamSpec("P")
T = TypeVar("T")


class TaskDefinition(Generic[P, T]):
    """The facts about a task. It is immutable after construction, except for a codec that is built later."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        task_name: str,
        queue_name: str,
        priority: int,
        options: TaskOptions,
        flags: Mapping[str, bool],
        exception_mapper: Mapping[type[BaseException], str],
        app_exception_mapper: Mapping[type[BaseException], str],
        default_unhandled_error_code: str | None,
        app_default_unhandled_error_code: str,
        sizes: SizeGuard,
        known_queues: frozenset[str],
        codec: TaskCodec | None,
        local_names: Mapping[str, Any],
    ) -> None:
        self.fn = fn
        self.task_name = task_name
        self.queue_name = queue_name
        self.priority = priority
        self.options = options
        self.options_json = options.to_json()
        self.flags = dict(flags)
        self.flags_json = json.dumps(self.flags, separators=(",", ":"), sort_keys=True) if self.flags else None
        self.exception_mapper = dict(exception_mapper)
        self.app_exception_mapper = app_exception_mapper
        self.default_unhandled_error_code = default_unhandled_error_code
        self.app_default_unhandled_error_code = app_default_unhandled_error_code
        self.sizes = sizes
        self.known_queues = known_queues
        self.is_async = inspect.iscoroutinefunction(fn)
        self._codec = codec
        self._local_names = local_names if codec is None else {}

    @property
    def codec(self) -> TaskCodec:
        """Arguments and result by declared type. `TaskDefinitionError` if an annotation still cannot be resolved."""
        if self._codec is None:
            try:
                self._codec = build_codec(self.fn, self._local_names)
            except NameError as problem:
                raise _unresolved(self.fn, problem) from None
        return self._codec

    @property
    def location(self) -> SourceLocation | None:
        return SourceLocation.from_function(self.fn)


def build_codec(fn: Callable[..., Any], local_names: Mapping[str, Any]) -> TaskCodec:
    """The codec of a function; `NameError` if an annotation names something that does not exist yet."""
    if not signatures.has_return_annotation(fn):
        raise _wrong(fn, "has no return type", ErrorCode.TASK_NO_RETURN_TYPE, _RETURN_HELP)
    try:
        signature = signatures.read(fn, local_names)
    except NameError:
        raise
    except Exception as problem:  # whatever evaluating the annotations of the user can raise
        raise _unsupported(fn, problem) from None
    ok_type = _ok_type(fn, signature.returns)
    try:
        return TaskCodec(signature, ok_type)
    except NameError:  # a model whose own fields name something that does not exist yet
        raise
    except (PydanticUserError, SchemaError, TypeError, ValueError) as problem:
        raise _unsupported(fn, problem) from None


def codec_if_ready(fn: Callable[..., Any], local_names: Mapping[str, Any]) -> TaskCodec | None:
    """The codec, or None if it must wait for names that do not exist yet."""
    try:
        return build_codec(fn, local_names)
    except NameError:
        return None


def _ok_type(fn: Callable[..., Any], returns: Any) -> Any:
    given = get_args(returns)
    if get_origin(returns) is not TaskResult or len(given) != 2 or given[1] is not TaskError:
        shown = getattr(returns, "__name__", None) if isinstance(returns, type) and not given else None
        raise _wrong(
            fn, f"must return TaskResult[T, TaskError], not {shown or returns}", ErrorCode.TASK_INVALID_RETURN_TYPE,
            _RETURN_HELP,
        )  # fmt: skip
    return given[0]


_RETURN_HELP = "def f(...) -> TaskResult[int, TaskError]: ..."


def _unsupported(fn: Callable[..., Any], problem: Exception) -> TaskDefinitionError:
    text = problem.message if isinstance(problem, PydanticUserError) else str(problem)
    # What pydantic advises next is about its own models, not about tasks.
    text = text.partition(". Set `arbitrary_types_allowed")[0].partition("\n")[0].strip() or type(problem).__name__
    help_text = "make it a dataclass, a TypedDict or a pydantic model, or send a plain value (an id, a path, a dict)"
    error = _wrong(fn, "has a type that cannot be encoded as JSON", ErrorCode.TASK_UNSUPPORTED_RESULT_TYPE, help_text)
    return error.with_note(text)


def _unresolved(fn: Callable[..., Any], problem: NameError) -> TaskDefinitionError:
    text = "uses a type that does not exist at run time"
    help_text = "import it outside `if TYPE_CHECKING`, or define it before the task is first used"
    return _wrong(fn, text, ErrorCode.TASK_UNSUPPORTED_RESULT_TYPE, help_text).with_note(str(problem))


def _wrong(fn: Callable[..., Any], text: str, code: ErrorCode, help_text: str | None) -> TaskDefinitionError:
    name = getattr(fn, "__qualname__", repr(fn))
    location = SourceLocation.from_function(fn)
    return TaskDefinitionError(f"task function {name} {text}", code=code, location=location, help_text=help_text)
