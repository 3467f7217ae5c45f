"""Sends of a Django project. Inside `transaction.atomic()` of the app's database a send uses Django's own connection,
so that the task is committed or rolled back with the rows, also by savepoints; outside, it is committed at once over
the app's own connections.

A Django connection belongs to a thread. A blocking send looks at the connection of its own thread. An awaited one looks
where Django's own async methods (`acreate`, `asave`) would go: in the thread that asgiref keeps for sensitive code. So
`await task.send_async()` is in the same transaction as `await Order.objects.acreate()`, if one is open there at all.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import psycopg
from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.rows import tuple_row

from horsies.core.db import Connection
from horsies.core.models.workflow import results
from horsies.core.models.workflow.spec import WorkflowSpec
from horsies.core.producer import bulk
from horsies.core.producer.send import (
    AnyTask,
    Explain,
    Sender,
    Written,
    failure,
    failure_of_many,
    inside,
    of_the_caller,
)
from horsies.core.store.sends import Send
from horsies.core.types import Err, is_blocking, run_sync
from horsies.core.workflows.handle import WorkflowHandle
from horsies.core.workflows.start import WorkflowStarter

if TYPE_CHECKING:
    from horsies.contrib.django.project import DjangoHorsies
    from horsies.core.brokers.postgres import PostgresBroker


@run_sync
async def _inside(driver: psycopg.Connection[Any], sends: Sequence[Send], explain: Explain) -> Written:
    return await inside(driver, sends, explain)


class DjangoSender(Sender):
    """Sends through Django's connection where a transaction is open on it. `connection=` of a send takes a connection
    of Django too: `connections["other"]`."""

    def __init__(self, broker: PostgresBroker, app: DjangoHorsies, *, resend: bool) -> None:
        super().__init__(broker, resend=resend)
        self._app = app

    def stream(self, sent_at: datetime) -> bulk.Stream:
        # What is written ahead could not be part of a transaction; and for awaited sends only another thread knows of
        # one. Thousands of tasks are copied all the same, after they are encoded.
        if is_blocking() and open_transaction(self._app) is None:
            return super().stream(sent_at)
        return cast(bulk.Stream, _NoStream())

    async def _send(self, send: Send, task: AnyTask, connection: Any) -> Written:
        written = await self._with_django([send], partial(failure, send), connection)
        return await super()._send(send, task, _of_others(connection)) if written is None else written

    async def _send_all(self, sends: Sequence[Send], task: AnyTask, connection: Any, stream: Any) -> Written:
        written = await self._with_django(list(sends), partial(failure_of_many, sends), connection)
        if written is not None:
            return written
        stream = None if isinstance(stream, _NoStream) else stream
        return await super()._send_all(sends, task, _of_others(connection), stream)

    async def _with_django(self, sends: Sequence[Send], explain: Explain, given: Any) -> Written | None:
        """What came of it, or None if Django's connection is not used."""
        if given is not None and not isinstance(given, BaseDatabaseWrapper):
            return None
        if is_blocking():
            return self._here(sends, explain, given)
        return await sync_to_async(self._here)(sends, explain, given)

    def _here(self, sends: Sequence[Send], explain: Explain, given: BaseDatabaseWrapper | None) -> Written | None:
        # A connection of Django's belongs to its thread: that of another one is not used, but the one of this thread.
        found = open_transaction(self._app) if given is None else connections[given.alias]
        if found is None:
            return None
        try:
            driver = driver_of(found)
        except Exception as problem:
            return Err(of_the_caller(explain(problem)))
        return _inside(driver, sends, explain)


class _NoStream:
    """Nothing is written ahead."""

    def put(self, part: Any) -> None: ...

    def drop(self) -> None: ...


def _of_others(connection: Any) -> Any:
    return None if isinstance(connection, BaseDatabaseWrapper) else connection


def open_transaction(app: DjangoHorsies) -> BaseDatabaseWrapper | None:
    """Django's connection of this thread to the app's database, if a transaction is open on it."""
    if not app.is_on_django:
        return None
    found = connections[app.database]
    # Before it has connected, Django's connection says that it does not commit by itself, whatever the settings say.
    commits = found.settings_dict["AUTOCOMMIT"] if found.connection is None else found.autocommit
    return found if found.in_atomic_block or not commits else None


def driver_of(connection: BaseDatabaseWrapper) -> psycopg.Connection[Any]:
    """The connection of psycopg behind one of Django. A transaction that can only be rolled back is refused, as Django
    refuses it."""
    connection.validate_no_broken_transaction()
    connection.ensure_connection()
    driver: psycopg.Connection[Any] = connection.connection
    return driver


class DjangoStarter(WorkflowStarter):
    """Starts workflows, inside a transaction of Django's where one is open."""

    def __init__(self, app: DjangoHorsies) -> None:
        super().__init__(app.get_broker, resend=app.config.resend_on_transient_err)
        self._app = app

    async def start_async(
        self, spec: WorkflowSpec[Any], workflow_id: str | None = None, *, good_until: datetime | None = None
    ) -> results.WorkflowStartResult[WorkflowHandle[Any]]:
        begin = self._here if is_blocking() else sync_to_async(self._here)
        begun = begin(spec, workflow_id, good_until)
        started = await begun if inspect.isawaitable(begun) else begun
        return await self.start_on(None, spec, workflow_id, good_until) if started is None else started

    def _here(
        self, spec: WorkflowSpec[Any], workflow_id: str | None, good_until: datetime | None
    ) -> results.WorkflowStartResult[WorkflowHandle[Any]] | None:
        """In the thread of the connection; None if there is no transaction."""
        found = open_transaction(self._app)
        if found is None:
            return None
        return _start_on(self, cast(Connection, _Blocking(found)), spec, workflow_id, good_until)


@run_sync
async def _start_on(
    starter: WorkflowStarter, conn: Connection, spec: WorkflowSpec[Any], workflow_id: str | None, until: datetime | None
) -> results.WorkflowStartResult[WorkflowHandle[Any]]:
    return await starter.start_on(conn, spec, workflow_id, until)


class _Blocking:
    """As much of an async connection as the start of a workflow needs, over one that blocks. `run_sync` runs the
    coroutines that await it to their end without a loop."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    async def execute(self, query: Any, params: Any = None, **_: Any) -> _Rows:
        cursor = psycopg.Cursor(driver_of(self._connection), row_factory=tuple_row)
        return _Rows(cursor.execute(query, params))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        with driver_of(self._connection).transaction():
            yield


class _Rows:
    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    async def fetchone(self) -> Any:
        return self._cursor.fetchone()
