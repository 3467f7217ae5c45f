"""Opens connections, single or through a pool, always with the settings of a `PostgresConfig`.

Every connection is in autocommit mode (a statement is a transaction unless the caller opens one), has a name that an
operator sees in `pg_stat_activity`, and gives up after `pool_timeout`. Errors contain the server's own words, and never
the password.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncCopy, AsyncCursor, conninfo
from psycopg.abc import Params
from psycopg.copy import AsyncWriter

from horsies.core.db import pooler
from horsies.core.db.failures import read_everything
from horsies.core.db.pool import Pool, PromptConnection
from horsies.core.db.pooler import SharedConnection
from horsies.core.errors import ConfigurationError
from horsies.core.models.broker import PostgresConfig

log = logging.getLogger("horsies.sql")

# libpq rounds a smaller connect timeout up to this.
SHORTEST_CONNECT_TIMEOUT = 2

READABLE = {"DateStyle": "ISO", "IntervalStyle": "postgres"}

# A session keeps the plan of a prepared statement until the next ANALYZE. A plan that was made while the table was
# small would read the whole table after it has filled. Every frequent statement has an index, so sequential scans are
# ruled out (D-12). The few other statements then look very expensive to the planner, which must not make it compile
# them. Since there is only one good plan, a prepared statement need not be planned again for each set of parameters;
# that takes longer than a task. A bitmap scan loses the order of its index: a claim planned for a short queue would
# have to sort the queue after it has become long.
BY_INDEX = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off -c plan_cache_mode=force_generic_plan"

# For statements that move a batch of named rows. The batch and the rows are sorted by id and joined in memory. So rows
# are locked in the order of their ids, and a plan that was made for an empty table does not become a nested loop.
IN_BULK = f"{BY_INDEX} -c enable_nestloop=off -c work_mem=16MB"


def make_pool(
    config: PostgresConfig,
    *,
    min_size: int = 1,
    max_size: int | None = None,
    linger: float = 0.0,
    name: str = "horsies",
    options: str | None = None,
) -> Pool:
    """A pool that connects on demand: up to `max_size` connections, `min_size` of which stay open when idle."""

    async def opened() -> AsyncConnection[Any]:
        return await connect(config, name=name, options=options)

    return Pool(
        opened,
        keep=min_size,
        max_size=min_size if max_size is None else max_size,
        timeout=config.pool_timeout,
        max_lifetime=config.pool_recycle,
        linger=linger,
        check=config.pool_pre_ping,
        name=name,
    )


async def connect(
    config: PostgresConfig, *, session: bool = False, name: str = "horsies", options: str | None = None
) -> AsyncConnection[Any]:
    """Open one connection. Use `session=True` for LISTEN and schema changes, which a transaction pooler cannot carry.
    `options` are server settings of the session. Through a transaction pooler only those are made that matter there,
    where every statement is planned anew. A pooler that is not declared raises a `ConfigurationError` (O-02)."""
    dsn = await _dsn(config, session=session)
    if config.is_shared(session=session):
        conn = await _open(config, dsn, name, kind=SharedConnection)
        if options is not None and isinstance(conn, SharedConnection):
            conn.keep(options)
        return conn
    if config.is_embedded or pooler.known(dsn) is pooler.Way.SERVER:
        try:
            return await _open(config, dsn, name, options=options)
        except ConfigurationError:
            if options is None or config.is_embedded:
                raise
            pooler.forget(dsn)  # a pooler has been put in between
    return await _open_carefully(config, dsn, name, options, is_direct=session and bool(config.session_database_url))


async def _open_carefully(
    config: PostgresConfig, dsn: str, name: str, options: str | None, *, is_direct: bool
) -> AsyncConnection[Any]:
    """It is not known what the URL leads to, or it leads to a session pooler: the settings follow later."""
    conn = await _open(config, dsn, name)
    try:
        if pooler.known(dsn) is None:
            setting = "session_database_url" if is_direct else "database_url"
            await pooler.find_out(dsn, conn, partial(_open, config, dsn, name), setting)
        if options is not None:
            await pooler.set_for_session(conn, options)
    except BaseException:
        conn.pgconn.finish()
        raise
    return conn


async def _open(
    config: PostgresConfig,
    dsn: str,
    name: str,
    *,
    options: str | None = None,
    kind: type[AsyncConnection[Any]] = PromptConnection,
) -> AsyncConnection[Any]:
    parameters = _parameters(config, dsn, name)
    if options is not None:
        given = conninfo.conninfo_to_dict(dsn).get("options")
        parameters["options"] = f"{given} {options}" if given else options
    opening = kind.connect(
        dsn,
        autocommit=True,
        prepare_threshold=None if kind is SharedConnection else 5,
        cursor_factory=EchoCursor if config.echo else None,
        **parameters,
    )
    try:
        conn = await _unless_cancelled(opening)
    except psycopg.OperationalError as problem:
        if pooler.is_refusal(problem):
            raise pooler.refused(problem) from problem
        raise
    read_everything(conn)
    try:
        await _have_readable_dates(conn)
    except BaseException:
        conn.pgconn.finish()
        raise
    return conn


async def _have_readable_dates(conn: AsyncConnection[Any]) -> None:
    """The database or the role may have another style of dates, which psycopg cannot read. The server has said which
    one it is, and PgBouncer keeps it for each of its clients, also in transaction mode (O-01)."""
    said = {name: conn.info.parameter_status(name) or style for name, style in READABLE.items()}
    if any(not said[name].startswith(style) for name, style in READABLE.items()):
        await pooler.set_for_session(conn, " ".join(f"-c {name}={style}" for name, style in READABLE.items()))


async def _unless_cancelled(opening: Coroutine[Any, Any, AsyncConnection[Any]]) -> AsyncConnection[Any]:
    """If psycopg is cancelled while it connects, it leaves a session behind on the server. So the connect is completed,
    and the connection is then closed."""
    task = asyncio.create_task(opening)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        _unwanted.add(task)
        task.add_done_callback(_close_unwanted)
        raise


_unwanted: set[asyncio.Task[AsyncConnection[Any]]] = set()


def _close_unwanted(task: asyncio.Task[AsyncConnection[Any]]) -> None:
    _unwanted.discard(task)
    if not task.cancelled() and task.exception() is None:
        task.result().pgconn.finish()


async def drain_pending_connects(patience_s: float = 2.0) -> None:
    """Wait for connects that nobody needs any more. Call this before the loop ends."""
    loop = asyncio.get_running_loop()
    opening = [task for task in _unwanted if task.get_loop() is loop]
    if opening:
        await asyncio.wait(opening, timeout=patience_s)


class EchoCursor(AsyncCursor[Any]):
    """Logs each statement (`echo=True`), never its parameters, which may be secrets."""

    async def execute(
        self, query: Any, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        log.info("%s", query)
        return await super().execute(query, params, prepare=prepare, binary=binary)

    @asynccontextmanager
    async def copy(
        self, statement: Any, params: Params | None = None, *, writer: AsyncWriter | None = None
    ) -> AsyncIterator[AsyncCopy]:
        log.info("%s", statement)
        async with super().copy(statement, params, writer=writer) as copying:
            yield copying


async def _dsn(config: PostgresConfig, *, session: bool) -> str:
    read = config.session_dsn if session else config.dsn
    # An embedded server may have to be started first, which takes seconds and must not block the loop.
    return await asyncio.to_thread(read) if config.is_embedded else read()


def _parameters(config: PostgresConfig, dsn: str, name: str) -> dict[str, Any]:
    """The parameters that are added to the URL; parameters in the URL take precedence."""
    given = conninfo.conninfo_to_dict(dsn)
    wanted: dict[str, Any] = {
        "connect_timeout": max(SHORTEST_CONNECT_TIMEOUT, int(config.pool_timeout)),
        **config.connect_kwargs(),
        "application_name": name,
    }
    return {key: value for key, value in wanted.items() if key not in given} | {"client_encoding": "UTF8"}
