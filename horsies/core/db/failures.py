"""Turns exceptions into values: `@as_result(explain)`, and which failures are worth a retry.

Internal code raises exceptions. At the public interface each becomes one `Err` with a code, a message that a person can
act on, and `retryable`, which is true exactly for lost or refused connections, serialization failures and deadlocks
(T-66).

`by_halves` is for a batch of which the database may refuse one item: that item is found, and the others are not kept
back by it. `mending` is for a statement that chooses its own rows.

The loaders read values that Python cannot represent. PostgreSQL stores `infinity` and years from 4713 BC to 294276,
where a `datetime` ends at the year 9999; and JSON that is nested deeper, or has longer numbers, than Python reads. Our
constraints refuse such dates, but somebody may have dropped them, and one value that cannot be read would fail the
whole result. So on all our connections such a date becomes the nearest one that every time zone can show, `LONG_AGO`
or `FAR_FUTURE`, and such JSON becomes None.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypedDict, TypeVar

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from horsies.core.db.bridge import BridgeError
from horsies.core.errors import HorsiesError
from horsies.core.models.broker import BrokerErrorCode, BrokerOperationError, BrokerResult, PostgresConfig
from horsies.core.models.failures import Refused as Refused
from horsies.core.types import Err, Ok

P = ParamSpec("P")

T = TypeVar("T")

R = TypeVar("R")

E = TypeVar("E")

# Everything that work with the database raises, whether the server is away or refuses a statement.
AWAY = (psycopg.Error, OSError)  # a TimeoutError is an OSError

_TRANSIENT = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleSessionTimeout,
    errors.TooManyConnections,
    ConnectionError,
    TimeoutError,
)

# libpq gives no code for a refused login, only the server's sentence.
_REFUSED_FOR_GOOD = (
    "authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "does not exist",
    "permission denied",
    "is not permitted to log in",
    "not currently accepting connections",
    "does not support SSL",
    "no such database",  # of PgBouncer
    "no such user",
)

_GRANTS = "the owner of the tables can give this role its rights: `horsies grants` prints or applies them"

_NO_DATABASE = re.compile(r'database "([^"]+)" does not exist')

_NO_TRANSACTIONS = "transaction blocks not allowed in statement pooling mode"

_NOT_IN_SCHEMA = re.compile(r"(?:column|relation|function) \S.* does not exist")


class OperationRefused(Exception):
    """What is asked for cannot be done; nothing went wrong."""

    def __init__(self, code: BrokerErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class SchemaInitFailed(Exception):
    """The tables could not be created or checked; the cause says why."""


def as_result(
    explain: Callable[..., E],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, Ok[T] | Err[E]]]]:
    """Turn the return value of the function into `Ok`, and its exception into an `Err` with the error value that
    `explain` makes of the exception and the arguments, or with that of a `Refused`."""

    def decorate(fn: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, Ok[T] | Err[E]]]:
        @functools.wraps(fn)
        async def safe(*args: P.args, **kwargs: P.kwargs) -> Ok[T] | Err[E]:
            try:
                return Ok(await fn(*args, **kwargs))
            except Refused as refusal:
                return Err(refusal.error)
            except Exception as problem:
                return Err(explain(problem, *args, **kwargs))

        return safe

    return decorate


def as_broker_result(
    code: BrokerErrorCode,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, BrokerResult[T]]]]:
    """The same for infrastructure failures: the code is that of the operation."""
    return as_result(lambda problem, *_, **__: failure(code, problem))


def failure(code: BrokerErrorCode, exc: Exception) -> BrokerOperationError:
    """The error value for what was raised. A schema that could not be created and a bridge that broke have codes of
    their own, whatever was asked."""
    if isinstance(exc, OperationRefused):
        return BrokerOperationError(exc.code, str(exc))
    if isinstance(exc, BridgeError):
        return broker_error(BrokerErrorCode.LOOP_RUNNER_FAILED, exc)
    if isinstance(exc, SchemaInitFailed):
        return broker_error(BrokerErrorCode.SCHEMA_INIT_FAILED, exc)
    if not is_known(exc):
        return broker_error(BrokerErrorCode.INTERNAL_FAILED, exc)
    return broker_error(code, exc)


def broker_error(code: BrokerErrorCode, exc: BaseException) -> BrokerOperationError:
    return BrokerOperationError(code, **facts_of(exc))


class ErrorFacts(TypedDict):
    """What every error value says of the exception behind it."""

    message: str
    retryable: bool
    exception: BaseException


def facts_of(problem: BaseException, config: PostgresConfig | None = None) -> ErrorFacts:
    """For the error value of any operation: `ScheduleError(code, name=name, **facts_of(problem))`. With the settings,
    the message has no password."""
    message = describe(problem) if config is None else config.redact(describe(problem))
    return {"message": message, "retryable": is_transient(problem), "exception": reason(problem)}


def reason(exc: BaseException) -> BaseException:
    """The underlying error."""
    return exc.__cause__ or exc if isinstance(exc, SchemaInitFailed) else exc


def is_transient(exc: BaseException) -> bool:
    """Whether the same statement may succeed a moment later."""
    exc = reason(exc)
    if isinstance(exc, _TRANSIENT):
        return True
    if not isinstance(exc, psycopg.OperationalError):
        return False
    if exc.sqlstate is not None:
        return exc.sqlstate.startswith("08")
    return not any(sentence in str(exc) for sentence in _REFUSED_FOR_GOOD)


def is_about_content(problem: BaseException) -> bool:
    """Whether the database refuses the content (data, constraints, size limits), as opposed to failing to write it."""
    if isinstance(problem, psycopg.DataError | psycopg.IntegrityError | UnicodeError):
        return True
    sqlstate = getattr(problem, "sqlstate", None)  # of psycopg, or of asyncpg on a connection of the caller's
    return isinstance(sqlstate, str) and sqlstate[:2] in ("22", "23", "54", "P0")


def is_away(problem: BaseException) -> bool:
    """Is it the database's fault? No batch does better in smaller parts then."""
    return isinstance(problem, AWAY) and not is_about_content(problem)


def is_held_up(problem: BaseException) -> bool:
    """Does somebody keep a row locked, or did the statement take too long? The database answers all the same."""
    return isinstance(problem, errors.LockNotAvailable | errors.QueryCanceled)


def is_about_one(problem: BaseException) -> bool:
    """Is one row at fault, or locked? The others of its batch may do better without it."""
    return is_held_up(problem) or not is_away(problem)


def describe(exc: BaseException) -> str:
    """One line for a person: what failed, in the words of the component that refused it."""
    exc = reason(exc)
    if isinstance(exc, HorsiesError):
        return "; ".join([exc.message, *exc.notes, *([exc.help_text] if exc.help_text else [])])
    text = " ".join((_without_content(exc) or str(exc)).split())
    if getattr(exc, "sqlstate", None) == errors.InsufficientPrivilege.sqlstate:
        return f"{text}; {_GRANTS}"
    return text if isinstance(exc, psycopg.Error) and text else f"{type(exc).__name__}: {text}"


def _without_content(exc: BaseException) -> str | None:
    """The words about content that the database refuses, without the detail, which may be the whole row: what users
    store is not for logs. The function that raised it is named."""
    if not is_about_content(exc):
        return None
    if not isinstance(exc, psycopg.Error):
        return getattr(exc, "message", None)  # of asyncpg
    if not exc.diag.message_primary:
        return None
    where = (exc.diag.context or "").partition("\n")[0]
    return f"{exc.diag.message_primary} ({where})" if where.startswith("PL/") else exc.diag.message_primary


def is_not_permitted(exc: BaseException) -> bool:
    """Whether the role lacks a right; only the owner of the tables can change that."""
    exc = reason(exc)
    return isinstance(exc, errors.InsufficientPrivilege) or isinstance(exc.__cause__, errors.InsufficientPrivilege)


def is_known(problem: BaseException) -> bool:
    """May the database or its configuration fail like this? Anything else is a mistake of ours."""
    return isinstance(problem, (*AWAY, HorsiesError, SchemaInitFailed))


def headline_of(text: str) -> str:
    """What such a failure is, for the first line of a message."""
    is_refused = any(sentence in text for sentence in (*_REFUSED_FOR_GOOD, "privilege"))
    return "the database refuses this" if is_refused else "the database did not answer"


def hint_for(text: str) -> str | None:
    """What to do about a failure that only the owner of the database can fix; None if unknown."""
    if missing := _NO_DATABASE.search(text):
        return f"create it: createdb {missing[1]} (or CREATE DATABASE), or correct the URL"
    if _NO_TRANSACTIONS in text:
        return "PgBouncer's pool_mode = statement cannot carry transactions: set it to transaction or session"
    if _NOT_IN_SCHEMA.search(text):
        return "the tables may be of an older version; horsies init-db upgrades them"
    return None


async def mending(act: Callable[[], Awaitable[T]], mend: Callable[[], Awaitable[Any]]) -> T:
    """What `act` returns. If the database refuses it because of what is in some row, `mend` is called and it is tried
    again, for as long as `mend` has found something."""
    while True:
        try:
            return await act()
        except psycopg.Error as problem:
            if not is_about_content(problem) or not await mend():
                raise


async def by_halves(
    items: Sequence[T],
    act: Callable[[Sequence[T]], Awaitable[R]],
    *,
    is_refusal: Callable[[Exception], bool],
    give_up: Callable[[T, Exception], None],
) -> list[R]:
    """What `act` has returned: for all the items at once or, if it must be, for ever smaller parts, in their order.

    `is_refusal` tells whether one item may be at fault: then its part is halved, and an item that is alone goes to
    `give_up`. Any other exception ends it all and is raised; what was done before that stays done."""
    done: list[R] = []
    parts = [items] if items else []
    while parts:
        part = parts.pop()
        try:
            done.append(await act(part))
        except Exception as problem:
            if not is_refusal(problem):
                raise
            if len(part) > 1:
                parts += reversed(halves(part))
            else:
                give_up(part[0], problem)
    return done


def halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)

FAR_FUTURE = datetime(9999, 12, 30, tzinfo=UTC)


class _Forgiving(Loader):
    """Uses the loader of psycopg for this type."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        usual = psycopg.adapters.get_loader(oid, Format.TEXT)
        assert usual is not None
        self._load = usual(oid, context).load


class ForgivingDateLoader(_Forgiving):
    """A date of any year."""

    def load(self, data: Buffer) -> Any:
        try:
            found = self._load(data)
        except (psycopg.DataError, OverflowError, ValueError):
            # As text these are `infinity`, `-infinity`, `… BC`, and years with more than four digits.
            text = bytes(data)
            return LONG_AGO if text.startswith((b"-", b"0001-")) or text.endswith(b"BC") else FAR_FUTURE
        return LONG_AGO if found < LONG_AGO else min(found, FAR_FUTURE)


class ForgivingJsonLoader(_Forgiving):
    """JSON of any depth, with numbers of any length."""

    def load(self, data: Buffer) -> Any:
        try:
            return self._load(data)
        except (ValueError, RecursionError):
            return None


def read_everything(conn: AsyncConnection[Any]) -> None:
    """No value in a result makes this connection fail."""
    conn.adapters.register_loader("timestamptz", ForgivingDateLoader)
    conn.adapters.register_loader("jsonb", ForgivingJsonLoader)
