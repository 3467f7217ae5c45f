"""horsies in applications of FastAPI and Starlette (X-21): a lifespan that opens and closes the connections, sends in
the transaction of a request, and the dashboard in one line.

`lifespan` and `mount_dashboard` need nothing but Starlette, and `transactional` needs FastAPI, whose dependencies it
makes. The dashboard, with its templates, is imported when it is mounted.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, get_origin
from weakref import WeakKeyDictionary

from horsies.contrib.stop_signals import on_stop
from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.producer.many import TaskSendOptions
from horsies.core.task_decorator import TaskFunction
from horsies.core.types import Err

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from horsies.core.models.broker import PostgresConfig
    from horsies.core.monitoring.masking import MaskFunction
    from horsies.core.tasks.definition import CallerConnection
    from horsies.web import AuthPolicy

__all__ = ["Transactional", "lifespan", "mount_dashboard", "transactional"]
P = ParamSpec("P")
T = TypeVar("T")
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(app: Horsies, *, inner: Lifespan | None = None) -> Lifespan:
    """`FastAPI(lifespan=lifespan(app))`: connect to the database when the server starts, and close all connections of
    the app when it has stopped, or the last server of this process that uses them.

    The start fails if the database does not answer, or if the tables are missing and cannot be made. `inner` is a
    lifespan of your own: it runs inside, so it may send. When the server is asked to stop, calls that wait for results
    end with `WAIT_INTERRUPTED`, so that it need not wait for them.
    """
    if not isinstance(app, Horsies):
        raise _misused(f"lifespan takes a Horsies app, not {type(app).__name__}", "FastAPI(lifespan=lifespan(app))")
    within = asynccontextmanager(inner) if inspect.isasyncgenfunction(inner) else inner

    @asynccontextmanager
    async def running(server: Any) -> AsyncIterator[Any]:
        broker = app.get_broker()
        with _lock:
            _servers[broker] = _servers.get(broker, 0) + 1
        try:
            await _open(broker)
            with on_stop(broker.stop_waiting):
                if within is None:
                    yield
                else:
                    async with within(server) as state:
                        yield state
        finally:
            with _lock:
                _servers[broker] -= 1
                was_last = not _servers[broker]
            if was_last:
                await broker.close_async()

    return running


# How many servers of this process use a broker, such as a public and an internal one, or those of a test: the last one
# that stops closes it.
_servers: WeakKeyDictionary[PostgresBroker, int] = WeakKeyDictionary()
_lock = threading.Lock()


async def _open(broker: PostgresBroker) -> None:
    opened = await broker.open_async()
    if isinstance(opened, Err):
        raise ConfigurationError(
            f"the server does not start without its queue at {broker.config.display_url()}: {opened.error.message}",
            code=ErrorCode.BROKER_INIT_FAILED,
            help_text="is the database there, and may this role use it? `horsies init-db` makes the tables",
        )


class Transactional:
    """Sends through one connection or session: `tasks(ship).send_async(order.id)` becomes part of its transaction."""

    __slots__ = ("connection",)

    def __init__(self, connection: CallerConnection) -> None:
        self.connection = connection

    def __call__(self, task: TaskFunction[P, T]) -> TaskSendOptions[P, T]:
        """The task, whose sends commit and roll back with the connection. It takes further `with_options(...)`."""
        return task.with_options(connection=self.connection)


def transactional(session: Any) -> Callable[..., Awaitable[Transactional]]:
    """A dependency of FastAPI, for sends with the session of the request:

    `Tasks = Annotated[Transactional, Depends(transactional(SessionDep))]`

    `session` is what your endpoints declare: `Annotated[AsyncSession, Depends(get_session)]`, or `get_session` itself.
    FastAPI calls a dependency once for a request, so this is the session that the endpoint has.
    """
    annotation = session if get_origin(session) is Annotated else _depending_on(session)

    # It is async because FastAPI would run it in a thread otherwise. There are few of them, and blocking endpoints that
    # wait for results may have them all.
    async def of_request(session: Any) -> Transactional:
        return Transactional(session)

    parameter = inspect.Parameter("session", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    of_request.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return of_request


def _depending_on(session: Any) -> Any:
    from fastapi import Depends
    from fastapi.params import Depends as Dependency

    if isinstance(session, Dependency):
        return Annotated[Any, session]
    if not callable(session):
        raise _misused(
            f"transactional takes the dependency that makes the session, not {type(session).__name__}",
            "transactional(get_session), or the Annotated[...] that your endpoints declare",
        )
    return Annotated[Any, Depends(session)]


class DashboardOptions(TypedDict, total=False):
    """The settings of `WebConfig`."""

    enable_actions: bool
    allowed_hosts: Collection[str] | None
    mask: MaskFunction | Collection[str] | None
    hide_payloads: bool
    title: str


def mount_dashboard(
    api: Starlette,
    app: Horsies | PostgresConfig | str,
    path: str = "/jobs",
    *,
    auth_policy: AuthPolicy,
    **options: Unpack[DashboardOptions],
) -> Starlette:
    """The dashboard of this app below a path of a FastAPI or Starlette application: `mount_dashboard(api, app, "/jobs",
    auth_policy=Token(token))`. Nobody gets in but whom the policy lets in, and nothing can be changed without
    `enable_actions=True`; it answers to the names in `allowed_hosts` only, which are those of this machine unless you
    name others. It closes with the outer application, and its streams end when that is asked to stop."""
    if not path.startswith("/") or not path.strip("/") or path.startswith("//") or "{" in path:
        instead = 'mount_dashboard(api, app, "/jobs", …)'
        raise _misused(f"a dashboard is mounted below a fixed path, not at {path!r}", instead)
    if not hasattr(api, "router"):
        raise _misused(
            f"a dashboard is mounted on the application that the server runs, not on {type(api).__name__}",
            "an object of FastAPI or Starlette",
        )
    from horsies.web import WebConfig, create_monitoring_app

    inner = create_monitoring_app(app, auth_policy=auth_policy, config=WebConfig(**options))
    api.mount(path.rstrip("/"), inner)
    live_with(api, inner)
    return inner


def live_with(api: Starlette, inner: Starlette) -> None:
    """The dashboard `inner` closes with the outer application, and its streams end when that is asked to stop."""
    dashboard = inner.state.dashboard
    before: Lifespan = api.router.lifespan_context

    @asynccontextmanager
    async def around(outer: Any) -> AsyncIterator[Any]:
        dashboard.follow_app()
        with on_stop(dashboard.streams.end_all):
            async with before(outer) as state:
                try:
                    yield state
                finally:
                    await dashboard.close()

    api.router.lifespan_context = around


def _misused(message: str, instead: str) -> ConfigurationError:
    return ConfigurationError(message, code=ErrorCode.CONFIG_INVALID, help_text=instead)
