"""The dashboard below a path of a Django site, in one line of `asgi.py`:

    application = with_dashboard(get_asgi_application(), "/jobs")

Django's own login decides who gets in: by default, active staff users may look. It is mounted beside Django's
application, so middleware does not see it; what it needs of Django (`ALLOWED_HOSTS`, the session, the login page) it
asks for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeAlias
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.db import close_old_connections
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.urls import set_script_prefix

from horsies.web import AuthPolicy, WebConfig, create_monitoring_app  # before Starlette: it says what is missing

# isort: split
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Mount, Route

from horsies.contrib.asgi import live_with
from horsies.contrib.django import conf
from horsies.contrib.django.project import project_app

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

    async def login_url(self, request: Request) -> str | None:
        """Django's login page, for whoever is not logged in."""
        if (await user_of(request)).is_authenticated:
            return None
        scope = request.scope
        set_script_prefix(f"{scope.get('app_root_path', '').rstrip('/')}/")  # of this request, for names of views
        query = scope["query_string"].decode("latin-1")
        return f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': scope['path'] + (query and f'?{query}')})}"

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
) -> Starlette:
    """The site with the dashboard below `path`. `auth_policy` is who may look and act, by default `StaffOnly()`;
    `config` replaces what `HORSIES` says about masking."""
    root = f"/{path.strip('/')}"
    if root == "/":
        raise ValueError("with_dashboard needs its own path, such as '/jobs'")
    app = project_app()
    app.know_all_tasks()
    made = config or WebConfig(
        enable_actions=enable_actions,
        allowed_hosts=None,  # checked below, by ALLOWED_HOSTS
        mask=conf.option("MASK"),
        hide_payloads=bool(conf.option("HIDE_PAYLOADS")),
    )
    pages = create_monitoring_app(app, auth_policy=auth_policy or StaffOnly(), config=made)

    def with_slash(request: Request) -> RedirectResponse:
        return RedirectResponse(f"{request.scope.get('root_path', '').rstrip('/')}{root}/", 307)

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(), www_redirect=False)
    site = application if isinstance(application, Starlette) else _around(application)
    site.router.routes[:0] = [Route(root, with_slash), Mount(root, pages, middleware=[hosts])]
    live_with(site, pages)
    return site


def _around(application: ASGIApp) -> Starlette:
    """A Starlette application that passes on to this one every request outside its own path."""
    site = Starlette(middleware=[Middleware(ScriptName)])
    site.router.default = application
    site.router.redirect_slashes = False
    return site


class ScriptName:
    """`FORCE_SCRIPT_NAME`: below which path a proxy serves the whole site, whether the server knows it or not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        prefix = str(settings.FORCE_SCRIPT_NAME or "").rstrip("/")
        if prefix and "path" in scope:
            path = scope["path"] if scope["path"].startswith(f"{prefix}/") else prefix + scope["path"]
            scope = {**scope, "root_path": prefix, "path": path}
        await self._app(scope, receive, send)


def allowed_hosts() -> list[str]:
    """`ALLOWED_HOSTS`, and with DEBUG the names of this machine. For Django a leading dot means the domain and all
    below it."""
    given = settings.ALLOWED_HOSTS or (LOCAL_NAMES if settings.DEBUG else ())
    return [name for host in given for name in ((host[1:], f"*{host}") if host.startswith(".") else (host,))]
