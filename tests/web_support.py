"""A dashboard for a test, and clients of it: one that asks and waits for the answer, and one that stays and listens to
events, as slowly as the test wants."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote

import httpx
from starlette.applications import Starlette
from starlette.requests import Request

from horsies.core.app import Horsies
from horsies.core.models.broker import PostgresConfig
from horsies.web import AllowAll, AuthPolicy, WebConfig, create_monitoring_app
from horsies.web.app import ENDPOINTS
from horsies.web.dashboard import Dashboard
from horsies.web.endpoints import EVENTS, Endpoint
from tests.support import eventually

HOST = "http://localhost:8600"
INTENT = {"X-Horsies-Intent": "action"}
READS = [endpoint for endpoint in ENDPOINTS if endpoint.action is None]
ACTIONS = [endpoint for endpoint in ENDPOINTS if endpoint.action is not None]
ANSWERING = [endpoint for endpoint in READS if endpoint.media_type != EVENTS]
# What a route needs to be asked at all.
NEEDED = {"tasks/breakdown": {"group_by": "queue"}, "workers/ping": {"timeout_seconds": "0.1"}}


IN_BODY: dict[str, dict[str, Any]] = {
    "bulk/cancel": {"ids": ["no-such-task"]},
    "bulk/rerun": {"ids": ["no-such-task"]},
    "bulk/move": {"ids": ["no-such-task"], "priority": 1},
}


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def path_of(endpoint: Endpoint, **values: str) -> str:
    """A path that leads to the route, whether or not something is there."""
    path = endpoint.path
    for name in endpoint.in_path:
        path = path.replace(f"{{{name}}}", values.get(name, "0"))
    return f"/api/{path}"


class Nobody:
    """A policy that lets nobody look. It is asked for acting only by mistake."""

    async def can_view(self, request: Request) -> bool:
        return False

    async def can_act(self, request: Request) -> bool:
        return True


class Board:
    """A dashboard and somebody who asks it."""

    def __init__(self, app: Starlette, client: httpx.AsyncClient) -> None:
        self.app = app
        self.client = client

    @property
    def dashboard(self) -> Dashboard:
        found = self.app.state.dashboard
        assert isinstance(found, Dashboard)
        return found

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(path, **more)

    async def act(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """As our own page would."""
        headers = {**INTENT, "Origin": HOST, **more.pop("headers", {})}
        return await self.client.post(path, json=body, headers=headers, **more)

    async def ask(self, endpoint: Endpoint, headers: Mapping[str, str] | None = None, **values: str) -> httpx.Response:
        """Any route, with everything that it needs."""
        path, given = path_of(endpoint, **values), dict(headers or {})
        if endpoint.action is not None:
            return await self.act(path, IN_BODY.get(endpoint.path), headers=given)
        return await self.client.get(path, params=NEEDED.get(endpoint.path), headers=given)


@contextlib.asynccontextmanager
async def a_board(
    source: Horsies | PostgresConfig | str, policy: AuthPolicy | None = None, **config: Any
) -> AsyncIterator[Board]:
    """Everybody may do everything, unless told otherwise."""
    settings = WebConfig(**{"enable_actions": True, **config})
    app = create_monitoring_app(source, auth_policy=policy or AllowAll(), config=settings)
    transport = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            yield Board(app, client)
    finally:
        await app.state.dashboard.close()


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal, which has nothing else but a sentence."""
    body = answer.json()
    assert body.keys() == {"code", "message"}, body
    assert isinstance(body["message"], str) and body["message"]
    return answer.status_code, body["code"]


def scope_of(path: str, headers: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A request as a server describes it, with the path exactly as it is."""
    given = {"host": "localhost:8600", **(headers or {})}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 8600),
        **more,
    }


async def raw(
    app: Any, scope: dict[str, Any], *pieces: bytes, is_whole: bool = False
) -> tuple[int, dict[str, str], bytes]:
    """The answer to a request: its status, headers and body. Of the body of the request only these pieces arrive; its
    end does so if it `is_whole`, or if there are none."""
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if is_whole or not waiting:
        waiting.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0) if waiting else await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])


class Watcher:
    """A client of the event stream, at the level of ASGI: nothing is buffered between it and the dashboard."""

    def __init__(self, app: Any, headers: Mapping[str, str] | None = None, path: str = "/api/events") -> None:
        self._scope = scope_of(path, headers)
        self._app = app
        self._gone = asyncio.Event()
        self._asked = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.status = 0
        self.body = b""
        self.has_ended = False

    async def __aenter__(self) -> Watcher:
        self._task = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        await eventually(lambda: self._task.done() or b"listening" in self.body, what="the stream, or a refusal")
        if self._task.done():
            self._task.result()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.reads.set()
        self._gone.set()
        await asyncio.wait_for(asyncio.gather(self._task, return_exceptions=True), 10)

    @property
    def is_open(self) -> bool:
        return not self._task.done()

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.body.decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    def ids(self, topic: str = "tasks") -> list[str]:
        return [one for event in self.events if event["topic"] == topic for one in event["ids"]]

    async def heard(self, topic: str, *ids: str) -> None:
        await eventually(lambda: set(ids) <= set(self.ids(topic)), what=f"events about {ids}")

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.reads.wait()
        self.body += message.get("body", b"")
        self.has_ended = not message.get("more_body", False)
