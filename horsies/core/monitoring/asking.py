"""Runs a query of the query API on the broker's own loop, in one read-only transaction with a time limit, and returns
every failure as a value. Reading blocks no writer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from psycopg import errors

from horsies.core.brokers.results import describe, is_transient
from horsies.core.monitoring.filters import BadQuestion
from horsies.core.monitoring.models.answers import MonitoringErrorCode, MonitoringQueryError, MonitoringResult
from horsies.core.store import monitoring
from horsies.core.store.tasks import Connection
from horsies.core.types.result import Err, Ok

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

PATIENCE = timedelta(seconds=15)

T = TypeVar("T")


async def ask(broker: PostgresBroker, question: Callable[[Connection], Awaitable[T]]) -> MonitoringResult[T]:
    """The answer. All statements of a query see the same moment."""
    try:
        return Ok(await broker.bridge.call(partial(_in_transaction, broker, question)))
    except BadQuestion as problem:
        return Err(MonitoringQueryError(MonitoringErrorCode.INVALID_ARGUMENT, str(problem)))
    except errors.QueryCanceled as problem:
        message = broker.config.redact(describe(problem))
        return Err(MonitoringQueryError(MonitoringErrorCode.QUERY_TIMEOUT, message, retryable=True))
    except Exception as problem:
        message = broker.config.redact(describe(problem))
        return Err(MonitoringQueryError(MonitoringErrorCode.DB_OPERATION_FAILED, message, is_transient(problem)))


async def _in_transaction(broker: PostgresBroker, question: Callable[[Connection], Awaitable[T]]) -> T:
    async with broker.hub.connection() as conn, conn.transaction():
        await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await monitoring.settle(conn, PATIENCE)
        return await question(conn)
