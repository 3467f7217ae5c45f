"""The dashboard in one line of `asgi.py`, for Django's staff (X-20), with a real uvicorn."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from subprocess import Popen
from typing import Any

import httpx
import pytest
from starlette.routing import Mount

from tests.django.conftest import rows
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def server(shop: str, started: Callable[..., Popen[str]]) -> Iterator[tuple[str, Popen[str]]]:
    port = free_port()
    process = started(shop, "-m", "uvicorn", "site_of_shop.asgi:application", "--port", str(port))
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{url}/admin/login/").status_code == 200
        except httpx.TransportError:
            return False

    eventually_sync(answers, timeout=40)
    yield url, process


def session_of(name: str, **facts: Any) -> dict[str, str]:
    """The cookie of somebody who has logged in to Django."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    user, _ = User.objects.get_or_create(username=name, defaults=facts)
    client.force_login(user)
    return {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}


def test_x20_without_the_extra_web_it_says_what_to_install(shop: str, started: Callable[..., Popen[str]]) -> None:
    site = started(shop, "-c", "import sys; sys.modules['starlette'] = None; import site_of_shop.asgi")
    said, _ = site.communicate(timeout=60)
    assert site.returncode == 1 and "the dashboard needs the package starlette" in said, said


def test_x20_a_site_with_its_dashboard(server: tuple[str, Popen[str]], shop: str) -> None:
    url, process = server
    page = {"accept": "text/html"}
    # Requests of the site itself, over ASGI.
    made = httpx.get(f"{url}/order/", params={"name": "a"}).json()
    awaited = httpx.get(f"{url}/order/async/", params={"name": "b"}).json()
    assert httpx.get(f"{url}/order/fail/", params={"name": "c"}).status_code == 500
    found = {task_id for (task_id,) in rows(shop, "SELECT id FROM horsies_tasks")}
    assert found == {made["task"], awaited["alone"], awaited["together"]}
    # Nobody is let in without a session; a person is sent to the login.
    assert httpx.get(f"{url}/jobs/api/tasks").status_code == 403
    answer = httpx.get(f"{url}/jobs/", headers=page)
    assert (answer.status_code, answer.headers["location"]) == (303, "/admin/login/?next=%2Fjobs%2F")
    assert httpx.get(f"{url}/jobs").headers["location"] == "/jobs/"
    assert httpx.get(f"{url}/jobsearch").status_code == 404
    # Only staff.
    plain, staff = session_of("bob"), session_of("ann", is_staff=True)
    assert httpx.get(f"{url}/jobs/api/tasks", cookies=plain).status_code == 403
    assert httpx.get(f"{url}/jobs/", cookies=plain, headers=page).status_code == 403
    assert httpx.get(f"{url}/jobs/", cookies={"sessionid": "made-up"}, headers=page).status_code == 303
    shown = httpx.get(f"{url}/jobs/", cookies=staff, headers=page)
    assert shown.status_code == 200
    assert "/jobs/static/" in shown.text
    listed = httpx.get(f"{url}/jobs/api/tasks", cookies=staff)
    assert made["task"] in listed.text
    # Nothing can be done, unless it is enabled; and other host names are not ours.
    acts = {"X-Horsies-Intent": "action"}
    refused = httpx.post(f"{url}/jobs/api/tasks/{made['task']}/cancel", cookies=staff, headers=acts)
    assert (refused.status_code, "ACTIONS_DISABLED" in refused.text) == (403, True)
    assert httpx.get(f"{url}/jobs/", cookies=staff, headers={"host": "evil.example.com"}).status_code == 400
    # An open stream of events does not keep the server from stopping.
    with httpx.stream("GET", f"{url}/jobs/api/events", cookies=staff, timeout=30) as stream:
        assert stream.status_code == 200
        events = stream.iter_bytes()
        next(events)
        os.kill(process.pid, signal.SIGTERM)
        for _ in events:  # until the server has ended it
            pass
    process.wait(30)


async def test_x20_staff_may_act_with_the_permission_if_it_is_enabled(shop: str) -> None:
    from asgiref.sync import sync_to_async
    from bookshop.tasks import pay
    from django.conf import settings
    from django.test import override_settings

    from horsies.contrib.django import with_dashboard

    async def site(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"site"})

    def prepare() -> tuple[str, dict[str, str], dict[str, str]]:
        from django.db import connections

        try:
            task_id = pay.send("1", 2).unwrap().task_id
            return task_id, session_of("ann", is_staff=True), session_of("root", is_staff=True, is_superuser=True)
        finally:
            connections.close_all()

    task_id, staff, root = await sync_to_async(prepare)()
    application: Any = with_dashboard(site, "jobs/", enable_actions=True)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/other")).text == "site"
        acts = {"X-Horsies-Intent": "action"}
        path = f"/jobs/api/tasks/{task_id}/cancel"
        assert (await client.post(path, headers=acts)).status_code == 403
        client.cookies.update(staff)
        assert (await client.post(path, headers=acts)).status_code == 403
        client.cookies.update(root)
        done = await client.post(path, headers=acts)
        assert done.status_code == 200, done.text
    # Below a prefix of a proxy.
    transport = httpx.ASGITransport(application, root_path="/shop")
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/shop/jobs")).headers["location"] == "/shop/jobs/"
        with override_settings(LOGIN_URL="admin:login"):
            sent_away = await client.get("/shop/jobs/tasks?status=FAILED", headers={"accept": "text/html"})
        assert sent_away.headers["location"] == "/shop/admin/login/?next=%2Fshop%2Fjobs%2Ftasks%3Fstatus%3DFAILED"
        client.cookies.update(root)
        page = await client.get("/shop/jobs/", headers={"accept": "text/html"})
        assert (page.status_code, "/shop/jobs/static/" in page.text) == (200, True)
        assert (await client.get("/shop/jobs/api/tasks")).status_code == 200
        # After a change of the secret whoever looks here stays logged in, here and in Django.
        with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
            for _ in range(2):
                assert (await client.get("/shop/jobs/api/tasks")).status_code == 200
    await dashboard_of(application).close()
    assert rows(shop, "SELECT status FROM horsies_tasks") == [("CANCELLED",)]
    assert rows(shop, "SELECT actor FROM horsies_audit") == [("root",)]
    with pytest.raises(ValueError, match="its own path"):
        with_dashboard(site, "/")


@asynccontextmanager
async def asking(application: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a member of the staff, without a server between."""
    from asgiref.sync import sync_to_async

    cookies = await sync_to_async(lambda: session_of("root", is_staff=True, is_superuser=True))()
    transport = httpx.ASGITransport(application)
    options = {"base_url": "http://127.0.0.1", "cookies": cookies, **options}
    try:
        async with httpx.AsyncClient(transport=transport, **options) as client:
            yield client
    finally:
        await dashboard_of(application).close()


def dashboard_of(application: Any) -> Any:
    [pages] = [route for route in application.routes if isinstance(route, Mount)]
    return pages._base_app.state.dashboard  # type: ignore[attr-defined]


async def a_site(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"site"})


@pytest.mark.parametrize("setting", [{"MASK": ["card"]}, {"HIDE_PAYLOADS": True}])
async def test_x20_the_dashboard_masks_as_the_setting_says(shop: str, setting: dict[str, Any]) -> None:
    from asgiref.sync import sync_to_async
    from bookshop.tasks import pay
    from django.test import override_settings

    from horsies.contrib.django import with_dashboard

    task_id = await sync_to_async(lambda: pay.send(card="4111-1111", amount=5).unwrap().task_id)()
    with override_settings(HORSIES=setting):
        application = with_dashboard(a_site, "jobs/")
    async with asking(application) as client:
        shown = await client.get(f"/jobs/api/tasks/{task_id}")
    assert shown.status_code == 200 and "4111-1111" not in shown.text


async def test_x20_who_logs_out_hears_no_further_events(shop: str) -> None:
    """`StaffOnly.can_view` is asked again and again by an open stream."""
    from asgiref.sync import sync_to_async
    from django.contrib.sessions.models import Session
    from starlette.requests import Request

    from horsies.contrib.django import StaffOnly

    cookies = await sync_to_async(lambda: session_of("ann", is_staff=True))()
    pairs = "; ".join(f"{name}={value}" for name, value in cookies.items())
    asked = Request({"type": "http", "headers": [(b"cookie", pairs.encode())]})
    assert await StaffOnly().can_view(asked)
    await Session.objects.all().adelete()
    assert not await StaffOnly().can_view(asked)


async def test_x20_the_names_of_hosts_are_those_that_django_allows(shop: str) -> None:
    from asgiref.sync import sync_to_async
    from bookshop.tasks import pay
    from django.test import override_settings

    from horsies.contrib.django import with_dashboard

    task_id = await sync_to_async(lambda: pay.send(card="1", amount=5).unwrap().task_id)()
    with override_settings(ALLOWED_HOSTS=["example.com", ".example.org"]):
        application = with_dashboard(a_site, "jobs/", enable_actions=True)
    async with asking(application, base_url="http://example.com") as client:
        for host, answer in (
            ("example.com", 200), ("example.com:8000", 200), ("EXAMPLE.com", 200), ("example.org", 200),
            ("shop.example.org", 200), ("shop.example.com", 400), ("evilexample.org", 400), ("", 400),
        ):  # fmt: skip
            assert (await client.get("/jobs/api/tasks", headers={"host": host})).status_code == answer, host
        # Anybody may send this header.
        forwarded = {"host": "evil.com", "X-Forwarded-Host": "example.com"}
        assert (await client.get("/jobs/api/tasks", headers=forwarded)).status_code == 400
        acts = {"X-Horsies-Intent": "action"}
        path = f"/jobs/api/tasks/{task_id}/cancel"
        for origin, answer in (("https://example.org", 403), ("https://example.com", 200)):
            done = await client.post(path, headers={**acts, "Origin": origin})
            assert done.status_code == answer, done.text


@pytest.mark.parametrize(("is_debug", "answer"), [(True, 200), (False, 400)])
async def test_x20_without_allowed_hosts_only_debug_lets_in_this_machine(
    shop: str, is_debug: bool, answer: int
) -> None:
    from django.test import override_settings

    from horsies.contrib.django import with_dashboard

    with override_settings(ALLOWED_HOSTS=[], DEBUG=is_debug):
        application = with_dashboard(a_site, "jobs/")
    async with asking(application) as client:
        for host in ("127.0.0.1", "localhost:8000", "site.localhost"):
            assert (await client.get("/jobs/api/tasks", headers={"host": host})).status_code == answer
        assert (await client.get("/jobs/api/tasks", headers={"host": "example.com"})).status_code == 400


async def test_x20_a_forced_script_name_is_the_prefix(shop: str) -> None:
    from django.test import override_settings

    from horsies.contrib.django import with_dashboard

    page = {"accept": "text/html"}
    with override_settings(FORCE_SCRIPT_NAME="/shop", LOGIN_URL="admin:login"):
        async with asking(with_dashboard(a_site, "jobs/")) as client:
            for prefix in ("", "/shop"):  # a proxy cuts it off, or does not
                assert (await client.get(f"{prefix}/jobs")).headers["location"] == "/shop/jobs/"
                shown = await client.get(f"{prefix}/jobs/", headers=page)
                assert (shown.status_code, "/shop/jobs/static/" in shown.text) == (200, True)
                assert (await client.get(f"{prefix}/jobsearch")).text == "site"
            client.cookies.clear()
            away = (await client.get("/jobs/", headers=page)).headers["location"]
            assert away == "/shop/admin/login/?next=%2Fshop%2Fjobs%2F"


class Server:
    """Starts and stops an application as a server does, and keeps what it answers."""

    def __init__(self, application: Any) -> None:
        self.scope: dict[str, Any] = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self.said: list[str] = []
        self._asks = iter(["lifespan.startup", "lifespan.shutdown"])
        self._application = application

    async def live(self) -> list[str]:
        await self._application(self.scope, self._receive, self._send)
        return self.said

    async def _receive(self) -> dict[str, str]:
        return {"type": next(self._asks)}

    async def _send(self, message: dict[str, str]) -> None:
        self.said.append(message["type"].removeprefix("lifespan."))


async def test_x20_a_site_without_a_lifespan_is_answered_for(shop: str) -> None:
    from django.core.asgi import get_asgi_application

    from horsies.contrib.django import with_dashboard

    for site in (get_asgi_application(), a_site):
        application = with_dashboard(site, "jobs")
        assert await Server(application).live() == ["startup.complete", "shutdown.complete"]


async def test_x20_an_application_of_starlette_keeps_its_lifespan_and_its_routes(shop: str) -> None:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    from horsies.contrib.django import with_dashboard

    lived: list[str] = []

    @asynccontextmanager
    async def lifespan(site: Any) -> AsyncIterator[dict[str, str]]:
        lived.append("begun")
        yield {"pool": "open"}
        lived.append("ended")

    async def named(request: Any) -> PlainTextResponse:
        return PlainTextResponse(str(request.url_for("named").path))

    routes = [Route("/named", named), Mount("/", a_site)]
    application = with_dashboard(Starlette(routes=routes, lifespan=lifespan), "jobs")
    server = Server(application)
    assert await server.live() == ["startup.complete", "shutdown.complete"]
    assert lived == ["begun", "ended"] and server.scope["state"] == {"pool": "open"}
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert [(await client.get(path)).text for path in ("/named", "/other")] == ["/named", "site"]
        assert (await client.get("/jobs/api/tasks")).status_code == 403


@pytest.mark.parametrize(
    ("fails", "said"), [("startup", ["startup.failed"]), ("shutdown", ["startup.complete", "shutdown.failed"])]
)
async def test_x20_a_lifespan_that_fails_is_told_to_the_server(shop: str, fails: str, said: list[str]) -> None:
    from starlette.applications import Starlette

    from horsies.contrib.django import with_dashboard

    @asynccontextmanager
    async def lifespan(site: Any) -> AsyncIterator[None]:
        if fails == "startup":
            raise OSError("no database")
        yield
        raise OSError("no database")

    server = Server(with_dashboard(Starlette(lifespan=lifespan), "jobs"))
    with pytest.raises(OSError, match="no database"):
        await server.live()
    assert server.said == said
