"""Connection poolers between us and the server: what must not be expected of them, and how one is noticed (O-01, O-02).

Behind a transaction pooler, each transaction may run in another session of the server. If that is declared, a
`SharedConnection` keeps nothing in its session. If it is not declared, `find_out` notices it at the first connection of
a process: a pooler invents the process id that it tells its clients, so a server that names another one is not who
answered. This costs one statement for each URL and process. In a session pooler sessions last, so everything works;
only the settings of a session must be made by a statement, because a pooler refuses or ignores those of the connection.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncTransaction
from psycopg.pq import TransactionStatus

from horsies.core.db.listener import answered_within
from horsies.core.db.pool import PromptConnection
from horsies.core.errors import ConfigurationError, ErrorCode

log = logging.getLogger("horsies.pool")

ROUNDS = 3  # of two connections that take turns; under load, others may have taken the session in between
PATIENCE_S = 2.0
_PER_TRANSACTION = ("lock_timeout",)  # the other settings are for plans that outlive a transaction
_REFUSAL = "unsupported startup parameter"
_SET = (
    "SELECT set_config(s.name, s.value, %(is_local)s) "
    "FROM unnest(%(names)s::text[], %(values)s::text[]) AS s(name, value)"
)


class Way(Enum):
    """What a URL leads to."""

    SERVER = "the server itself"
    SESSION_POOLER = "a pooler that keeps sessions"


_known: dict[str, Way] = {}  # by URL


def without_session(poll_s: float) -> tuple[str, list[str]]:
    """What an installation without a session of its own goes without (O-01): a headline, and what is slower."""
    return "notifications do not pass the transaction pooler, and there is no session_database_url", [
        f"workers poll: every 20 ms while there is work, and up to every {poll_s:g} s when there is none; "
        "who waits for a result polls too, up to every second",
        "a running task that is cancelled or taken over is stopped at the next heartbeat of its worker",
        "a worker of another host is known to be dead only by its silence",
        "workers do not answer a ping",
    ]


def known(dsn: str) -> Way | None:
    """What this process has found out about the URL."""
    return _known.get(dsn)


def forget(dsn: str) -> None:
    """The way may have changed."""
    _known.pop(dsn, None)


async def find_out(
    dsn: str, conn: AsyncConnection[Any], another: Callable[[], Awaitable[AsyncConnection[Any]]], setting: str
) -> None:
    """Raise if sessions do not last there; `setting` is the name of the URL in the configuration."""
    if await _backend(conn) == conn.info.backend_pid:
        _known[dsn] = Way.SERVER
    elif await _is_shared(conn, another):
        raise not_declared(setting)  # it is not remembered: the pooler may be configured anew
    else:
        _known[dsn] = Way.SESSION_POOLER
        log.warning("%s leads to a pooler in session mode: each connection takes one more statement to open", setting)


async def _is_shared(first: AsyncConnection[Any], another: Callable[[], Awaitable[AsyncConnection[Any]]]) -> bool:
    """Whether the two get each other's session of the server, or a new one each time."""
    pid = await _backend(first)
    second = await another()
    try:
        for _ in range(ROUNDS):
            if await answered_within(PATIENCE_S, second, _backend(second)) == pid or await _backend(first) != pid:
                return True
        return False
    except TimeoutError:  # the pool is full; if it is full of sessions, the first connection still has its own
        return await _backend(first) != pid
    finally:
        second.pgconn.finish()


async def _backend(conn: AsyncConnection[Any]) -> int:
    row = await (await conn.execute("SELECT pg_backend_pid()", prepare=False)).fetchone()
    assert row is not None
    return int(row[0])


def not_declared(setting: str) -> ConfigurationError:
    """The error for a transaction pooler that the configuration does not know of."""
    if setting == "session_database_url":
        remedy = "give the address of the server itself, or leave it out: then workers and waiting programs poll"
    else:
        remedy = (
            "set PostgresConfig(pgbouncer_transaction_mode=True), and session_database_url to an address that does not "
            "go through the pooler, if there is one"
        )
    return ConfigurationError(
        f"{setting} leads to a connection pooler in transaction mode (such as PgBouncer), which is not declared",
        code=ErrorCode.BROKER_INVALID_URL,
        notes=["prepared statements, notifications and locks of a session do not survive there"],
        help_text=remedy,
    )


def is_refusal(problem: BaseException) -> bool:
    """Whether a pooler refused the connection because of a parameter that it does not know."""
    return isinstance(problem, psycopg.OperationalError) and _REFUSAL in str(problem)


def refused(problem: BaseException) -> ConfigurationError:
    """The error for a parameter that comes from the URL or the environment: ours are not sent to a pooler."""
    text = " ".join(str(problem).split())
    return ConfigurationError(
        f"a connection pooler refuses the connection: {text[text.find(_REFUSAL) :]}",
        code=ErrorCode.BROKER_INVALID_URL,
        notes=["the URL or the environment (PGOPTIONS) gives it"],
        help_text="leave it out, or let PgBouncer ignore it: ignore_startup_parameters = options. Behind a pooler in "
        "transaction mode, also set PostgresConfig(pgbouncer_transaction_mode=True)",
    )


def settings_of(options: str) -> dict[str, str]:
    """The settings in options of ours, `-c name=value …`."""
    pairs = (word.partition("=") for word in options.split() if word != "-c")
    return {name: value for name, _, value in pairs}


async def set_for_session(conn: AsyncConnection[Any], options: str) -> None:
    """Make these settings by a statement, because the way to the server does not take them with the connection."""
    await conn.execute(*_setting(settings_of(options), is_local=False), prepare=False)


def _setting(settings: Mapping[str, str], *, is_local: bool) -> tuple[str, dict[str, Any]]:
    return _SET, {"names": list(settings), "values": list(settings.values()), "is_local": is_local}


class SharedConnection(PromptConnection):
    """A connection through a transaction pooler. What holds for each transaction, such as how long it waits for a lock,
    is set anew in each, in the same round trip as far as possible."""

    _settings: Mapping[str, str] = MappingProxyType({})

    def keep(self, options: str) -> None:
        """Make the settings that matter here in each transaction."""
        wanted = settings_of(options)
        self._settings = {name: wanted[name] for name in _PER_TRANSACTION if name in wanted}

    async def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool = False
    ) -> Any:
        if not self._settings or not self._is_idle or query == "":
            return await super().execute(query, params, prepare=prepare, binary=binary)
        try:
            async with self.pipeline():
                await super().execute("BEGIN")
                await self._set()
                cursor = await super().execute(query, params, prepare=prepare, binary=binary)
                await super().execute("COMMIT")
        except psycopg.Error:
            if self.pgconn.transaction_status == TransactionStatus.INERROR:
                await self.rollback()
            raise
        return cursor

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[AsyncTransaction]:
        is_outermost = self._is_idle
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            if self._settings and is_outermost:
                await self._set()
            yield transaction

    @property
    def _is_idle(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    async def _set(self) -> None:
        await super().execute(*_setting(self._settings, is_local=True))


@asynccontextmanager
async def as_one(conn: AsyncConnection[Any]) -> AsyncIterator[None]:
    """What is executed meanwhile is one transaction, and is sent at once. PostgreSQL takes all that is sent together as
    one transaction; but a shared connection makes one of each statement, to set something in it."""
    async with conn.pipeline():
        if isinstance(conn, SharedConnection):
            async with conn.transaction():
                yield
        else:
            yield


@asynccontextmanager
async def in_one_go(conn: AsyncConnection[Any]) -> AsyncIterator[None]:
    """A transaction that begins with its first statement and ends with its last one, without a wait of its own for
    either: what is executed meanwhile is sent as far as nobody has to read a reply first. (`conn.transaction()` waits
    for the replies before its commit, and for three more.) Inside it, `conn.transaction()` must not be used."""
    is_idle = conn.pgconn.transaction_status == TransactionStatus.IDLE
    if not is_idle or isinstance(conn, SharedConnection) or not isinstance(conn, PromptConnection):
        async with conn.pipeline(), conn.transaction():
            yield
        return
    conn.is_in_one_go = True
    try:
        async with conn.pipeline():
            await conn.execute("BEGIN")
            yield
            await conn.execute("COMMIT")
    except BaseException:
        # What is refused stops everything behind it in the pipeline, the commit too.
        if conn.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            await conn.rollback()
        raise
    finally:
        conn.is_in_one_go = False
