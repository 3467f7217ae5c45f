"""Queries the database without changing it. The broker's own connections would create or migrate the tables first. A
check must not do that, because it runs with code that is not deployed yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from psycopg import AsyncConnection, errors

from horsies.core.brokers.connections import BY_INDEX, connect
from horsies.core.brokers.results import as_broker_result, broker_error
from horsies.core.errors import CheckWarning, ConfigurationError, ErrorCode, HorsiesError
from horsies.core.models.broker import BrokerErrorCode, BrokerResult
from horsies.core.sync import BridgeError
from horsies.core.types.result import Err

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

T = TypeVar("T")
Question: TypeAlias = Callable[[AsyncConnection[Any]], Awaitable[T]]


class Visit:
    """One connection, which lives on the broker's loop."""

    def __init__(self, broker: PostgresBroker) -> None:
        self._broker = broker
        self._conn: AsyncConnection[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._conn is not None:
            self._broker.bridge.run(self._conn.close)

    def ask(self, question: Question[T]) -> BrokerResult[T]:
        """The answer, or why there is none."""
        try:
            return self._broker.bridge.run(partial(self._ask, question))
        except BridgeError as error:
            return Err(broker_error(BrokerErrorCode.LOOP_RUNNER_FAILED, error))

    @as_broker_result(BrokerErrorCode.DB_OPERATION_FAILED)
    async def _ask(self, question: Question[T]) -> T:
        if self._conn is None:
            self._conn = await connect(self._broker.config, name="horsies check", options=BY_INDEX)
        return await question(self._conn)


def no_answer(answer: Err[Any]) -> Iterator[HorsiesError]:
    """The finding for a query that failed. There is none if the tables do not exist yet, because then they contain
    nothing."""
    match answer.error.exception:
        case errors.UndefinedTable():
            return
        case errors.UndefinedColumn() | errors.UndefinedFunction():
            yield CheckWarning(
                "the tables are of an older version, so their contents could not be checked",
                code=ErrorCode.BROKER_INIT_FAILED,
                help_text="horsies init-db upgrades them, and so does the first worker that starts",
            )
        case _:
            text = f"the database does not answer: {answer.error.message}"
            yield ConfigurationError(text, code=ErrorCode.BROKER_INIT_FAILED)
