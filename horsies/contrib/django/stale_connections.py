"""Django's connections in the children of a worker. A request of a web server begins and ends with
`close_old_connections`; so does a task here: connections that are too old (`CONN_MAX_AGE`) or broken are closed before
and after it, and before and after its hooks, which use the ORM too, in the thread in which it uses the ORM. That is the
main thread for a `def` task. An `async def` task reaches the ORM through asgiref's thread for sensitive code, so it is
done there; while other async tasks of the child run, which share its connection and may be in the middle of an
`aiterator()`, only what is broken is closed.

In tests nothing is closed (inline or drained tasks run in the process of the test, whose connections Django keeps open
for it): the hooks are registered when a child of a worker starts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections, reset_queries

from horsies.core.app import Horsies
from horsies.core.tasks.context import AsyncTaskContext, TaskContext


def begin(app: Horsies) -> Callable[[], None]:
    """What a child does when it starts."""

    def close_stale_connections_around_tasks() -> None:
        connections.close_all()  # what imports have opened may be old when the first task comes
        app.task_hooks.add_outermost(around)

    return close_stale_connections_around_tasks


def around(ctx: TaskContext | AsyncTaskContext) -> AbstractContextManager[None] | AbstractAsyncContextManager[None]:
    return _around_async() if isinstance(ctx, AsyncTaskContext) else _around()


@contextmanager
def _around() -> Iterator[None]:
    _tidy()
    try:
        yield
    finally:
        close_old_connections()


_async_tasks = 0  # that run in this child; only its loop changes it


@asynccontextmanager
async def _around_async() -> AsyncIterator[None]:
    # Decided in the loop and done in one thread, in the same order: no task begins between the two.
    global _async_tasks
    _async_tasks += 1
    try:
        await sync_to_async(_tidy if _async_tasks == 1 else _close_broken)()
        yield
    finally:
        _async_tasks -= 1
        await sync_to_async(_close_broken if _async_tasks else close_old_connections)()


def _tidy() -> None:
    reset_queries()  # with DEBUG, Django remembers every statement
    close_old_connections()


def _close_broken() -> None:
    """What nobody can use any more. The rest becomes old until the last of the tasks that share it has ended."""
    for connection in connections.all(initialized_only=True):
        connection.health_check_done = False
        if connection.connection is None or connection.in_atomic_block or not connection.errors_occurred:
            continue
        if connection.is_usable():
            connection.errors_occurred = False
        else:
            connection.close()
