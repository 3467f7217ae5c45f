"""`create_monitoring_app`: the dashboard as an ASGI application (M-60). It can be mounted at any path of another
application, whose lifespan it does not need. This module puts the parts together: who may do what is decided here for
every route, from the declarations in `api.py`, `actions.py` and `pages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from horsies.core.app import Horsies
from horsies.core.models.broker import PostgresConfig
from horsies.core.monitoring import queries
from horsies.web import openapi
from horsies.web.actions import ACTIONS
from horsies.web.answers import Refusal, json_answer, refusal_answer, unavailable
from horsies.web.api import READS
from horsies.web.bulk_actions import BULK_ACTIONS
from horsies.web.config import WebConfig
from horsies.web.dashboard import Dashboard, checked_policy, dashboard_of
from horsies.web.endpoints import EVENTS, Asked, Endpoint
from horsies.web.login import Token, login_routes
from horsies.web.pages import SCREENS
from horsies.web.policies import AuthPolicy, HasLogin
from horsies.web.schedule_actions import SCHEDULE_ACTIONS
from horsies.web.screens import Screen, refusal_page
from horsies.web.security import Guard, path_in, refuse_embedded, refuse_foreign, refuse_unintended, root_of

Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]
STATIC = Path(__file__).parent / "static"
# A database that has fallen silent would not be noticed for much longer than a person waits.
READ_S = queries.PATIENCE.total_seconds() + 5
EXACT_S = queries.EXACT_PATIENCE.total_seconds() + 10
ACTION_S = 120.0
WORDS = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


async def _openapi(asked: Asked) -> dict[str, Any]:
    return openapi.document(ENDPOINTS, asked.dashboard.config.title, root_of(asked.request.scope))


ENDPOINTS: tuple[Endpoint, ...] = (
    *READS,
    Endpoint("GET", "openapi.json", "This document.", dict[str, Any], _openapi, needs_tables=False),
    *BULK_ACTIONS,
    *ACTIONS,
    *SCHEDULE_ACTIONS,
)


def create_monitoring_app(
    app: Horsies | PostgresConfig | str, *, auth_policy: AuthPolicy, config: WebConfig | None = None
) -> Starlette:
    """The dashboard of an app or, without one, of a database (a configuration or a URL). It never creates or changes
    tables. `auth_policy` decides who may look and who may act."""
    policy = checked_policy(auth_policy)
    dashboard = Dashboard(app, policy, config or WebConfig())

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        dashboard.follow_app()
        yield
        await dashboard.close()

    made = Starlette(
        routes=[
            *(Route(f"/api/{endpoint.route}", _api(endpoint), methods=[endpoint.method]) for endpoint in ENDPOINTS),
            *(login_routes(policy) if isinstance(policy, Token) else ()),
            *(Route(screen.route, _screen(screen), methods=[screen.method]) for screen in SCREENS),
            Mount("/static", _StaticFiles(directory=STATIC), name="static"),
        ],
        middleware=[Middleware(Guard, allowed_hosts=dashboard.config.allowed_hosts)],
        exception_handlers={HTTPException: _no_route, Refusal: _refused},
        lifespan=lifespan,
    )
    made.router.redirect_slashes = False
    made.state.dashboard = dashboard
    return made


class _StaticFiles(StaticFiles):
    """Files of this package, which are no secret. A browser asks whether they have changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


def _api(endpoint: Endpoint) -> Handler:
    async def answer(request: Request) -> Response:
        asked = Asked(dashboard_of(request), request)
        await (_refuse_actor if endpoint.action else _refuse_viewer)(asked)
        values = await endpoint.values(request)
        seconds = ACTION_S if endpoint.action else EXACT_S if values.get("exact") else READ_S
        try:
            async with asyncio.timeout(seconds):
                return await _answer(endpoint, asked, values)
        except TimeoutError:
            late = f"the database did not answer within {seconds:g} s"
            raise unavailable(f"{late}; a part of this may be done" if endpoint.action else late) from None

    return answer


async def _answer(endpoint: Endpoint, asked: Asked, values: dict[str, Any]) -> Response:
    if endpoint.needs_tables:
        facts = await asked.dashboard.schema.look()
        facts.refuse_acting() if endpoint.action else facts.refuse_reading()
    if endpoint.media_type == EVENTS:
        return await _stream(endpoint, asked)
    found = await endpoint.ask(asked, **values)
    # In a thread, because a large workflow takes a while, and streams and other requests must not wait for it.
    return await asyncio.to_thread(_as_json, asked.dashboard, found)


def _as_json(dashboard: Dashboard, found: Any) -> Response:
    return json_answer(dashboard.masking.applied_to(found))


async def _stream(endpoint: Endpoint, asked: Asked) -> Response:
    """Whoever only wants to know the headers needs no stream."""
    if asked.request.method == "HEAD":
        return Response(media_type=EVENTS)
    stream: Response = await endpoint.ask(asked)  # it is its own answer, as ASGI has it
    return stream


def _screen(screen: Screen) -> Handler:
    async def show(request: Request) -> Response:
        asked = Asked(dashboard_of(request), request)
        if not screen.acts and (login := await _login(asked)) is not None:
            return RedirectResponse(login, 303)
        await (_refuse_actor if screen.acts else _refuse_viewer)(asked)
        if screen.needs_tables:
            facts = await asked.dashboard.schema.look()
            facts.refuse_acting() if screen.acts else facts.refuse_reading()
        return await screen.show(request)

    return show


async def _login(asked: Asked) -> str | None:
    """Where a person has to go first."""
    policy = asked.dashboard.policy
    if not isinstance(policy, HasLogin) or await policy.can_view(asked.request):
        return None
    return await policy.login_url(asked.request)


async def _refuse_viewer(asked: Asked) -> None:
    refuse_embedded(asked.request)
    if not await asked.dashboard.policy.can_view(asked.request):
        raise Refusal(403, "FORBIDDEN", "you may not look at this dashboard")


async def _refuse_actor(asked: Asked) -> None:
    """Whoever changes something must come from here, may look, may act, and means it (M-62, M-93)."""
    refuse_foreign(asked.request)
    await _refuse_viewer(asked)
    if not asked.dashboard.config.enable_actions:
        raise Refusal(403, "ACTIONS_DISABLED", "actions are not enabled (--enable-actions, enable_actions)")
    if not await asked.dashboard.policy.can_act(asked.request):
        raise Refusal(403, "FORBIDDEN", "you may look, but not act")
    refuse_unintended(asked.request)


async def _no_route(request: Request, problem: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(problem, HTTPException)
    code = WORDS.get(problem.status_code, "REFUSED")
    return await _refused(request, Refusal(problem.status_code, code, str(problem.detail), dict(problem.headers or {})))


async def _refused(request: Request, problem: Exception) -> Response:
    """For programs JSON, for people a page."""
    assert isinstance(problem, Refusal)
    is_for_programs = path_in(request.scope).startswith("/api/") or "text/html" not in request.headers.get("accept", "")
    return refusal_answer(problem) if is_for_programs else refusal_page(request, problem)
