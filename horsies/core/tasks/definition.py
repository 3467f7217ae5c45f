"""What is known about a task (its function, its options, its codec), the options of one send, and the limits on the
size of its payloads. Sending and running build on it.

The codec is built when the task is defined. If an annotation names something that does not exist yet (a class further
down in the module), the codec is built at the first use; `app.check()` builds the codecs that are still missing.
Whether a deadline, a key, a delay or a connection of a send is valid is decided at the send (`producer/envelope.py`,
`producer/enqueue.py`), where a problem is a value.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from horsies.core.codec import arguments as signatures
from horsies.core.codec.older import OlderSignature
from horsies.core.codec.serde import TaskCodec
from horsies.core.errors import ErrorCode, SourceLocation, TaskDefinitionError
from horsies.core.models.app import PayloadPolicy
from horsies.core.models.tasks import RetryPolicy, TaskError, TaskOptions, TaskResult
from horsies.core.tasks.context import AnyTaskContext, AsyncTaskContext, TaskContext
from horsies.core.tasks.hooks import TaskHooks

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import engine, orm
    from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

    BlockingConnection: TypeAlias = (
        psycopg.Connection[Any] | engine.Connection | orm.Session | orm.scoped_session[orm.Session]
    )

    class AsyncpgConnection(Protocol):
        """A connection of asyncpg, also one from its pool."""

        def is_closed(self) -> bool: ...
        def is_in_transaction(self) -> bool: ...

    AwaitingConnection: TypeAlias = (
        psycopg.AsyncConnection[Any]
        | AsyncpgConnection
        | sqlalchemy_asyncio.AsyncConnection
        | sqlalchemy_asyncio.AsyncSession
        | sqlalchemy_asyncio.async_scoped_session[sqlalchemy_asyncio.AsyncSession]
    )
    CallerConnection: TypeAlias = BlockingConnection | AwaitingConnection

logger = logging.getLogger("horsies.payload")
P = ParamSpec("P")
T = TypeVar("T")
Flags: TypeAlias = Iterable[str] | Mapping[str, bool]
Delay: TypeAlias = float | timedelta | datetime
_FLAG = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NO_DELAY: Final = object()
_RETURN_HELP = "def f(...) -> int: ..., or def f(...) -> TaskResult[int, TaskError]: ... to return errors as values"


@dataclass(eq=False, repr=False, kw_only=True)
class TaskDefinition(Generic[P, T]):
    """The facts about a task. It is immutable after construction, except for a codec that is built later."""

    fn: Callable[..., Any]
    task_name: str
    queue_name: str
    priority: int
    options: TaskOptions
    flags: Mapping[str, bool]
    exception_mapper: Mapping[type[BaseException], str]
    app_exception_mapper: Mapping[type[BaseException], str]
    default_unhandled_error_code: str | None
    app_default_unhandled_error_code: str
    sizes: SizeGuard
    hooks: TaskHooks
    known_queues: Mapping[str, int]  # with their priorities
    accepts: Sequence[Callable[..., Any]] = ()  # functions with the signatures of older versions (O-32)
    leave_undecodable_ms: int = 0  # what cannot be read is left to others for so long; 0: it fails
    ready_codec: InitVar[TaskCodec | None]
    local_names: InitVar[Mapping[str, Any]]

    def __post_init__(self, ready_codec: TaskCodec | None, local_names: Mapping[str, Any]) -> None:
        self.options_json = self.options.to_json()
        self.flags_json = json.dumps(self.flags, separators=(",", ":"), sort_keys=True) if self.flags else None
        self.is_async = inspect.iscoroutinefunction(self.fn)
        if ready_codec is not None:
            self.codec = ready_codec
        else:
            self._local_names = local_names

    @cached_property
    def codec(self) -> TaskCodec:
        """Arguments and result by declared type. `TaskDefinitionError` if an annotation still cannot be resolved."""
        try:
            return build_codec(self.fn, self._local_names, self.accepts)
        except NameError as problem:
            text = "uses a type that does not exist at run time"
            help_text = "import it outside `if TYPE_CHECKING`, or define it before the task is first used"
            error = _wrong(self.fn, text, ErrorCode.TASK_UNSUPPORTED_RESULT_TYPE, help_text)
            raise error.with_note(str(problem)) from None

    @property
    def location(self) -> SourceLocation | None:
        return SourceLocation.from_function(self.fn)


def build_codec(
    fn: Callable[..., Any], local_names: Mapping[str, Any], accepts: Sequence[Callable[..., Any]] = ()
) -> TaskCodec:
    """The codec of a function; `NameError` if an annotation names something that does not exist yet."""
    if not signatures.has_return_annotation(fn):
        raise _wrong(fn, "has no return type", ErrorCode.TASK_NO_RETURN_TYPE, _RETURN_HELP)
    try:
        signature = signatures.read(fn, local_names)
    except NameError:
        raise
    except signatures.FilledParameterError as problem:
        raise _wrong(fn, str(problem), ErrorCode.TASK_INVALID_OPTIONS, _how_to_take(fn, problem.name)) from None
    except Exception as problem:  # whatever evaluating the annotations of the user can raise
        raise _unsupported(fn, problem) from None
    ok_type = _ok_type(fn, signature.returns)
    if signature.context_kind not in (None, _context_kind(fn)):
        text = f"takes a {signature.context_kind.__name__}, and is given a {_context_kind(fn).__name__}"
        raise _wrong(fn, text, ErrorCode.TASK_INVALID_OPTIONS, _how_to_take(fn, signatures.CONTEXT))
    older = [_older(old, local_names) for old in accepts]
    try:
        is_value = get_origin(signatures.unwrapped(signature.returns)) is not TaskResult
        return TaskCodec(signature, ok_type, returns_value=is_value, accepts=older)
    except NameError:  # a model whose own fields name something that does not exist yet
        raise
    except (PydanticUserError, SchemaError, TypeError, ValueError) as problem:
        raise _unsupported(fn, problem) from None


def accepts_problem(accepts: Any) -> str | None:
    """Why `accepts` cannot be used; None if it can (O-32)."""
    if not isinstance(accepts, list | tuple):
        return f"accepts must be a list of functions with older signatures, not {type(accepts).__name__}"
    for old in accepts:
        if not inspect.isfunction(old) or inspect.iscoroutinefunction(old) or inspect.isgeneratorfunction(old):
            name = getattr(old, "__qualname__", type(old).__name__)
            return f"accepts: {name} must be a plain function that returns the arguments of today, not async"
    return None


def _context_kind(fn: Callable[..., Any]) -> type[AnyTaskContext]:
    """The kind of context that this function is given (P-01)."""
    return AsyncTaskContext if inspect.iscoroutinefunction(fn) else TaskContext


def _how_to_take(fn: Callable[..., Any], name: str) -> str:
    """How a parameter that the library fills in is written."""
    if name == signatures.CONTEXT:
        return f"write it as the first parameter: def f({name}: {_context_kind(fn).__name__}, ...)"
    kind = "WorkflowContext" if name == "workflow_ctx" else "WorkflowMeta"
    return f"write it as the last parameter: def f(..., {name}: {kind} | None = None)"


def _older(old: Callable[..., Any], local_names: Mapping[str, Any]) -> OlderSignature:
    try:
        signature = signatures.read(old, local_names)
        if signature.injected or signature.context_kind is not None:
            raise ValueError("a function of accepts=[...] takes only what senders have given")
        return OlderSignature(old, signature)
    except NameError:
        raise
    except Exception as problem:  # whatever evaluating the annotations of the user can raise
        raise _unsupported(old, problem) from None


def _ok_type(fn: Callable[..., Any], returns: Any) -> Any:
    """The type of the value: that of a `TaskResult`, or whatever else the function returns (X-01)."""
    if not _has_result(returns):
        return returns
    meant = signatures.unwrapped(returns)
    given = get_args(meant)
    if get_origin(meant) is not TaskResult or len(given) != 2 or given[1] is not TaskError:
        shown = getattr(returns, "__name__", None) if isinstance(returns, type) and not given else None
        raise _wrong(
            fn, f"must return a value or TaskResult[T, TaskError], not {shown or returns}",
            ErrorCode.TASK_INVALID_RETURN_TYPE, _RETURN_HELP,
        )  # fmt: skip
    return given[0]


def _has_result(returns: Any) -> bool:
    """Whether a result or an error is the type, or a part of it, as in `TaskResult[int, TaskError] | None`."""
    meant = signatures.unwrapped(returns)
    if get_origin(meant) in (TaskResult, Union, UnionType):
        return get_origin(meant) is TaskResult or any(map(_has_result, get_args(meant)))
    return isinstance(meant, type) and issubclass(meant, TaskResult | TaskError)


def _unsupported(fn: Callable[..., Any], problem: Exception) -> TaskDefinitionError:
    text = problem.message if isinstance(problem, PydanticUserError) else str(problem)
    # What pydantic advises next is about its own models, not about tasks.
    text = text.partition(". Set `arbitrary_types_allowed")[0].partition("\n")[0].strip() or type(problem).__name__
    help_text = "make it a dataclass, a TypedDict or a pydantic model, or send a plain value (an id, a path, a dict)"
    error = _wrong(fn, "has a type that cannot be encoded as JSON", ErrorCode.TASK_UNSUPPORTED_RESULT_TYPE, help_text)
    return error.with_note(text)


def _wrong(fn: Callable[..., Any], text: str, code: ErrorCode, help_text: str | None) -> TaskDefinitionError:
    name = getattr(fn, "__qualname__", repr(fn))
    location = SourceLocation.from_function(fn)
    return TaskDefinitionError(f"task function {name} {text}", code=code, location=location, help_text=help_text)


class SendOptionArgs(TypedDict, total=False):
    """The options of `with_options`; None is the same as not given."""

    good_until: datetime | None
    idempotency_key: str | None
    flags: Flags | None
    connection: CallerConnection | None
    queue: str | None
    priority: int | None
    timeout_ms: int | None
    retry_policy: RetryPolicy | None
    eta: datetime | None
    delay: float | timedelta | None
    reuse_after_failure: bool


@dataclass(frozen=True, slots=True)
class SendOptions:
    """What one send does differently from the definition of its task, its deadline and idempotency key, and the
    connection whose transaction it joins."""

    good_until: datetime | None = None
    idempotency_key: str | None = None
    flags: Flags | None = None
    connection: CallerConnection | None = field(default=None, repr=False)
    queue: str | None = None
    priority: int | None = None
    timeout_ms: int | None = None
    retry_policy: RetryPolicy | None = None
    eta: datetime | None = None
    delay: float | timedelta | None = None
    reuse_after_failure: bool = False  # of the key

    def with_defaults(self, others: SendOptions) -> SendOptions:
        """These options, completed by the others; flags of both are merged. `ValueError` says what is wrong with
        flags."""
        if others is NO_OPTIONS or others is self:
            return self
        missing = {each.name: getattr(others, each.name) for each in fields(self) if getattr(self, each.name) is None}
        if self.flags is not None:
            missing["flags"] = flags_of(others.flags) | flags_of(self.flags)
        reuse = self.reuse_after_failure or (others.reuse_after_failure and self.idempotency_key is not None)
        return replace(self, reuse_after_failure=reuse, **missing)


NO_OPTIONS: Final = SendOptions()


def flags_of(flags: Flags | None) -> dict[str, bool]:
    """Flags as a mapping: a list means true for each. `ValueError` says what is wrong with them."""
    if flags is None:
        return {}
    if isinstance(flags, str) or not isinstance(flags, Iterable):
        raise ValueError("flags must be a list of names, or a mapping of names to booleans")
    named = dict(flags) if isinstance(flags, Mapping) else dict.fromkeys(flags, True)
    for name, value in named.items():
        if not isinstance(name, str) or not _FLAG.fullmatch(name):
            raise ValueError(f"flag {name!r} must match ^[a-z][a-z0-9_]*$ and have at most 64 characters")
        if not isinstance(value, bool):
            raise ValueError(f"flag {name!r} must be True or False")
    return {str(name): value for name, value in named.items()}


def given(delay: Any) -> Any:
    """Whether a delay was given; None counts as given, and is refused."""
    return _NO_DELAY if delay is None else delay


class SizeGuard:
    """The payload policy of one app, with a record of the warnings in this process."""

    def __init__(self, policy: PayloadPolicy) -> None:
        self._policy = policy
        self._warned: set[tuple[str, str]] = set()
        # A text of at most this length is small enough without counting, because a character has at most four bytes.
        limits = [limit for limit in (policy.warn_bytes, policy.reject_bytes) if limit is not None]
        self._harmless_chars = min(limits) // 4 if limits else None

    @property
    def reject_bytes(self) -> int | None:
        return self._policy.reject_bytes

    def refusal(self, task_name: str, args_json: str | None, kwargs_json: str | None) -> str | None:
        """Why these arguments are too large to be sent; None if they may be sent (with a warning if they are large)."""
        harmless = self._harmless_chars
        if harmless is None or len(args_json or "") + len(kwargs_json or "") <= harmless:
            return None
        size = self._size((args_json, kwargs_json))
        limit = self._policy.reject_bytes
        if limit is not None and size > limit:
            return (
                f"the arguments have {size} bytes, more than the {limit} that PayloadPolicy.reject_bytes allows; "
                "store the data elsewhere and send a reference to it"
            )
        self._warn(task_name, "arguments", size)
        return None

    def watch(self, task_name: str, kind: str, text: str) -> None:
        """Warn if the text is large. Nothing is refused: results and workflow nodes only cause warnings."""
        self._warn(task_name, kind, self._size((text,)))

    def _size(self, texts: tuple[str | None, ...]) -> int:
        if self._harmless_chars is None or sum(len(text) for text in texts if text) <= self._harmless_chars:
            return 0
        return sum(len(text.encode()) for text in texts if text)

    def _warn(self, task_name: str, kind: str, size: int) -> None:
        limit = self._policy.warn_bytes
        if limit is None or size <= limit or (task_name, kind) in self._warned:
            return
        self._warned.add((task_name, kind))
        logger.warning("task %s: %s of %d bytes, more than %d (logged once per process)", task_name, kind, size, limit)
