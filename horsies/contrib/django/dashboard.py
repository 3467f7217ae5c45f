"""The dashboard below a path of a Django site, in one line of `asgi.py`:

    application = with_dashboard(get_asgi_application(), "/jobs")

Django's own login decides who gets in: by default, active staff users may look. It is an ASGI application beside
Django's, so middleware does not see it; what it needs of Django (`ALLOWED_HOSTS`, the session, the login page) it asks
for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any, TypeAlias
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.db import close_old_connections
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.shortcuts import resolve_url
from django.urls import set_script_prefix

from horsies.web import AuthPolicy, WebConfig, create_monitoring_app  # before Starlette: it says what is missing

# isort: split
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse

from horsies.contrib.django import conf
from horsies.contrib.django.project import project_app
from horsies.contrib.stop_signals import on_stop
from horsies.web.dashboard import Dashboard

ASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
ACT = "horsies.change_task"
LOCAL_NAMES = (".localhost", "127.0.0.1", "[::1]")
_USER = "horsies.django_user"


class StaffOnly:
    """Active staff users may look; those with the permission `horsies.change_task` may act, if actions are enabled. The
    session is that of Django: whoever logs out there is out here."""

    async def can_view(self, request: Request) -> bool:
        user = await user_of(request, again=True)
        return bool(user.is_active and user.is_staff)

    async def can_act(self, request: Request) -> bool:
        user = await user_of(request)
        return bool(user.is_active and user.is_staff) and bool(await _in_django(lambda: user.has_perm(ACT)))

    def actor(self, request: Request) -> str:
        user = request.scope.get(_USER)
        return str(user.get_username()) if user is not None and user.is_authenticated else "anonymous"


async def user_of(request: Request, *, again: bool = False) -> Any:
    """The user of Django's session. An open stream asks again and again, and must hear that the session has ended."""
    if again or _USER not in request.scope:
        key = request.cookies.get(settings.SESSION_COOKIE_NAME)
        request.scope[_USER] = AnonymousUser() if not key else await _in_django(lambda: _user_of_session(key))
    return request.scope[_USER]


def _user_of_session(key: str) -> Any:
    asked = HttpRequest()
    session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    # To read: after a change of SECRET_KEY Django would give the session a new key, which the browser would never hear.
    session.cycle_key = session.flush = lambda: None
    asked.session = session
    return get_user(asked)


async def _in_django(ask: Callable[[], Any]) -> Any:
    """In the thread of Django's connections, whose old ones are closed around it as for a request of Django's own."""

    def asked() -> Any:
        close_old_connections()
        try:
            return ask()
        finally:
            close_old_connections()

    return await sync_to_async(asked)()


def with_dashboard(
    application: ASGIApp,
    path: str,
    *,
    auth_policy: AuthPolicy | None = None,
    enable_actions: bool = False,
    config: WebConfig | None = None,
) -> SiteWithDashboard:
    """The site with the dashboard below `path`. `auth_policy` is who may look and act, by default `StaffOnly()`;
    `config` replaces what `HORSIES` says about masking."""
    app = project_app()
    app.know_all_tasks()
    made = config or WebConfig(
        enable_actions=enable_actions,
        allowed_hosts=None,  # checked here, by Django's rules
        mask=conf.option("MASK"),
        hide_payloads=bool(conf.option("HIDE_PAYLOADS")),
    )
    policy = auth_policy or StaffOnly()
    dashboard = create_monitoring_app(app, auth_policy=policy, config=made)
    return SiteWithDashboard(application, path, dashboard, dashboard.state.dashboard, policy)


class SiteWithDashboard:
    """An ASGI application: the dashboard below its path, Django everywhere else."""

    def __init__(self, site: ASGIApp, path: str, pages: ASGIApp, dashboard: Dashboard, policy: AuthPolicy) -> None:
        self._site = site
        self._root = f"/{path.strip('/')}"
        if self._root == "/":
            raise ValueError("with_dashboard needs a path of its own, such as '/jobs'")
        self._pages = pages
        self._dashboard = dashboard
        self._policy = policy
        self._hears_signals = False
        self._leaving = ExitStack()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "http" and self._is_ours(scope):
            self._hear_signals()
            await self._answer(scope, receive, send)
        else:
            await self._site(scope, receive, send)

    def _is_ours(self, scope: Any) -> bool:
        path = within(scope)
        return path == self._root or path.startswith(f"{self._root}/")

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        root, path = prefix_of(scope) + self._root, prefix_of(scope) + within(scope)
        scope = {**scope, "root_path": root, "path": path, "headers": with_forwarded_host(scope["headers"])}
        headers = Headers(scope=scope)
        if not is_allowed_host(headers.getlist("host")):
            await PlainTextResponse("this host name is not in ALLOWED_HOSTS", 400)(scope, receive, send)
        elif path == root:
            await RedirectResponse(f"{root}/", 307)(scope, receive, send)
        elif (login := await self._login(scope, headers)) is not None:
            await RedirectResponse(login, 302)(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    async def _login(self, scope: Any, headers: Headers) -> str | None:
        """Where a person who is not logged in is sent; None for whoever is, and for programs."""
        is_page = scope["method"] == "GET" and "text/html" in headers.get("accept", "")
        if not isinstance(self._policy, StaffOnly) or not is_page or f"{self._root}/static/" in scope["path"]:
            return None
        user = await user_of(Request(scope))
        if user.is_authenticated:
            return None
        set_script_prefix(f"{scope['root_path'].removesuffix(self._root)}/")  # of this request, for names of views
        query = scope["query_string"].decode("latin-1")
        return f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': scope['path'] + (query and f'?{query}')})}"

    async def _live(self, scope: Any, receive: Any, send: Any) -> None:
        """The lifespan of the site, during which the dashboard lives. An application of Django's has none and says so
        with an exception; one that has others in it may have one."""
        life = Lifespan(receive, send, self._hear_signals, self._close)
        try:
            await self._site(scope, life.receive, life.send)
        except Exception:
            if life.was_heard:  # it has one, which has failed
                await self._close()
                raise
        await life.answer()

    async def _close(self) -> None:
        await self._dashboard.close()
        self._leaving.close()
        self._hears_signals = False

    def _hear_signals(self) -> None:
        """End the streams of events when the server is told to stop: it waits for them before it ends anything else. A
        server without lifespans says nothing at its start, so the first request counts too."""
        if not self._hears_signals:
            self._hears_signals = True
            self._leaving.enter_context(on_stop(self._dashboard.streams.end_all))


class Lifespan:
    """What the server and the site say to each other about start and end: `begin` is called when the site has started,
    `end` when it has stopped."""

    def __init__(self, receive: Any, send: Any, begin: Callable[[], None], end: Callable[[], Awaitable[None]]) -> None:
        self._receive, self._send = receive, send
        self._begin, self._end = begin, end
        self._asked: str | None = None  # what the server waits for
        self._is_over = False
        self.was_heard = False  # the site has listened

    async def receive(self) -> Any:
        message = await self._receive()
        self.was_heard = True
        self._asked = message["type"]
        return message

    async def send(self, message: Any) -> None:
        kind = str(message["type"])
        if not kind.startswith("lifespan."):
            raise RuntimeError(f"{kind!r} is no answer to a lifespan")
        if kind == "lifespan.startup.complete":
            self._begin()
        else:
            self._is_over = True
            await self._end()
        self._asked = None
        await self._send(message)

    async def answer(self) -> None:
        """Answer what the site has not answered."""
        while not self._is_over:
            asked = self._asked or (await self.receive())["type"]
            await self.send({"type": f"{asked}.complete"})


def prefix_of(scope: Any) -> str:
    """Below which path a proxy serves the whole site, as Django knows it."""
    return str(settings.FORCE_SCRIPT_NAME or scope.get("root_path", "")).rstrip("/")


def within(scope: Any) -> str:
    """The path without this prefix. A server may have it there or not."""
    path, prefix = str(scope["path"]), prefix_of(scope)
    return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path


def with_forwarded_host(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """With the host name that a browser has asked for, if Django believes its proxy about it. What follows needs it,
    such as the comparison with the origin of an action."""
    told = [value for name, value in headers if name.lower() == b"x-forwarded-host"]
    if not settings.USE_X_FORWARDED_HOST or not told:
        return headers
    others = [(name, value) for name, value in headers if name.lower() != b"host"]
    return [*others, *((b"host", value) for value in told)]


def is_allowed_host(given: list[str]) -> bool:
    """By the rules of Django: `ALLOWED_HOSTS`, and with DEBUG the names of this machine."""
    allowed = list(settings.ALLOWED_HOSTS) or (list(LOCAL_NAMES) if settings.DEBUG else [])
    name = split_domain_port(given[0])[0] if len(given) == 1 else ""
    return bool(name) and validate_host(name, allowed)
