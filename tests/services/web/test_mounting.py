"""The dashboard inside other applications (M-60), and what is hidden in all of its answers (M-93)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg import AsyncConnection
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from horsies import TaskError, TaskResult
from horsies.core.errors import ConfigurationError
from horsies.web import AllowAll, WebConfig, app, create_monitoring_app
from horsies.web.answers import Refusal
from horsies.web.render import render
from horsies.web.screens import Screen
from tests.app_support import an_app
from tests.factories import given_attempt, given_task, given_workflow
from tests.services.web.conftest import THERE
from tests.support import eventually
from tests.web_support import ANSWERING, HOST, Watcher, a_board, name_of, refusal

SECRET = "hunter2-and-more"


def in_starlette(inner: Any, place: str) -> Any:
    async def hello(request: Request) -> Response:
        return PlainTextResponse("outer")

    return Starlette(routes=[Mount(place, app=inner), Route("/", hello)])


def in_fastapi(inner: Any, place: str) -> Any:
    outer = FastAPI()
    outer.mount(place, inner)
    return outer


def in_a_dispatcher(inner: Any, place: str) -> Any:
    """As one puts an application beside Django: by the beginning of the path, without any lifespan."""

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only http")
        assert scope["path"].startswith(place)
        await inner({**scope, "root_path": place}, receive, send)

    return dispatch


@asynccontextmanager
async def mounted(url: str, way: Any, place: str) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    inner = create_monitoring_app(url, auth_policy=AllowAll(), config=WebConfig(enable_actions=True))
    outer = way(inner, place)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url=HOST) as client:
        yield outer, client
    await inner.state.dashboard.close()


@pytest.mark.parametrize("place", ["/ops", "/ops/jobs"])
@pytest.mark.parametrize("way", [in_starlette, in_fastapi, in_a_dispatcher])
async def test_m60_it_can_be_mounted_anywhere(
    database_url: str, db: AsyncConnection[Any], way: Any, place: str
) -> None:
    task = await given_task(db)
    async with mounted(database_url, way, place) as (outer, client):
        assert (await client.get(f"{place}/api/tasks/{task}")).json()["task_id"] == task
        document = (await client.get(f"{place}/api/openapi.json")).json()
        assert document["servers"] == [{"url": place}] and "/api/tasks" in document["paths"]
        assert (await client.get(f"{place}/api/nothing")).json()["code"] == "NOT_FOUND"
        assert (await client.get(f"{place}/static/horsies.css")).status_code == 200
        page = await client.get(f"{place}/nothing", headers={"Accept": "text/html"})
        assert f'href="{place}/static/horsies.css"' in page.text
        headers = {"X-Horsies-Intent": "action", "Origin": HOST}
        assert (await client.post(f"{place}/api/tasks/{task}/cancel", headers=headers)).status_code == 200
        async with Watcher(outer, path=f"{place}/api/events") as watcher:
            another = await given_task(db)
            await watcher.heard("tasks", another)


async def test_m60_two_dashboards_do_not_meet(database_url: str, empty_database_url: str) -> None:
    async with a_board(database_url) as one, a_board(empty_database_url) as other:
        assert (await one.get("/api/meta")).json()["schema_state"] == "MATCH"
        assert (await other.get("/api/meta")).json()["schema_state"] == "ABSENT"


async def test_m60_a_lifespan_closes_it_and_a_request_opens_it_again(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    inner = create_monitoring_app(database_url, auth_policy=AllowAll())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(inner), base_url=HOST) as client:
        async with inner.router.lifespan_context(inner):
            assert (await client.get("/api/tasks")).status_code == 200

        async def nobody_connected() -> bool:
            row = await (
                await db.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name LIKE 'horsies%'"
                )
            ).fetchone()
            return row == (0,)

        await eventually(nobody_connected)
        assert (await client.get("/api/tasks")).status_code == 200
    await inner.state.dashboard.close()


async def sessions(db: AsyncConnection[Any]) -> int:
    row = await (
        await db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("has_app", [False, True])
async def test_m60_there_are_at_most_ten_connections(
    database_url: str, db: AsyncConnection[Any], has_app: bool
) -> None:
    with an_app(database_url) if has_app else contextlib.nullcontext(database_url) as source:
        async with a_board(source) as board:
            assert (await board.get("/schedules")).status_code == 200
            assert await sessions(db) == 1, "an idle one"
            async with await AsyncConnection.connect(database_url) as other:
                await other.execute("LOCK TABLE horsies_tasks IN ACCESS EXCLUSIVE MODE")  # everybody waits for it
                asking = [
                    asyncio.create_task(ask)
                    for number in range(12)
                    for ask in (board.get(f"/api/tasks/{number}"), board.act(f"/api/tasks/{number}/rerun"))
                ]
                await eventually(lambda: has_ten(db))
                assert {await sessions(db) for _ in range(20)} == {10 + 1}
            assert {answer.status_code for answer in await asyncio.gather(*asking)} == {404}
            async with Watcher(board.app):
                assert (await board.get("/api/workers/ping?timeout_seconds=0.1")).status_code == 200
                assert await sessions(db) <= 12, "one to watch, and one to hear the workers"


async def has_ten(db: AsyncConnection[Any]) -> bool:
    return await sessions(db) >= 10 + 1


async def test_m60_the_broker_of_the_app_is_left_alone(database_url: str) -> None:
    with an_app(database_url) as shop:
        async with a_board(shop) as board:
            assert (await board.get("/api/tasks")).status_code == 200
            assert board.dashboard.broker is not shop.get_broker()
            assert board.dashboard.database.pool_size == 1


async def test_m90_a_screen_is_a_page_that_escapes_everything(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def show(request: Request) -> Response:
        script = "<script>alert(1)</script>"
        return render(request, "error.html", 200, status=200, code=script, message=script)

    async def refuse(request: Request) -> Response:
        raise Refusal(404, "NOT_FOUND", "there is no <b>such</b> task")

    monkeypatch.setattr(app, "SCREENS", (Screen("/shown", show), Screen("/refused", refuse)))
    async with a_board(database_url) as board:
        page = await board.get("/shown", headers={"Accept": "text/html"})
        assert page.status_code == 200 and "<script>" not in page.text and "&lt;script&gt;" in page.text
        page = await board.get("/refused", headers={"Accept": "text/html"})
        assert page.status_code == 404 and "&lt;b&gt;such" in page.text
        assert refusal(await board.get("/refused", headers={"Accept": "application/json"})) == (404, "NOT_FOUND")
        assert refusal(await board.client.post("/shown")) == (405, "METHOD_NOT_ALLOWED")


async def test_m62_a_screen_that_acts_is_held_to_what_actions_are(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(request: Request) -> Response:
        return PlainTextResponse("done")

    monkeypatch.setattr(app, "SCREENS", (Screen("/act", act, acts=True),))
    async with a_board(database_url) as board:
        assert (await board.act("/act")).text == "done"
        assert refusal(await board.client.post("/act")) == (403, "INTENT_MISSING")
        assert refusal(await board.act("/act", headers={"Origin": "null"})) == (403, "WRONG_ORIGIN")
        assert refusal(await board.get("/act")) == (405, "METHOD_NOT_ALLOWED")
    async with a_board(database_url, enable_actions=False) as board:
        assert refusal(await board.act("/act")) == (403, "ACTIONS_DISABLED")
    await db.execute("UPDATE horsies_meta SET value = '1' WHERE key = 'schema_version'")
    async with a_board(database_url) as board:
        assert refusal(await board.act("/act")) == (409, "SCHEMA_INCOMPATIBLE")


async def test_m70_a_screen_that_needs_tables_says_that_there_are_none(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def show(request: Request) -> Response:
        return PlainTextResponse("shown")

    monkeypatch.setattr(app, "SCREENS", (Screen("/a", show), Screen("/b", show, needs_tables=False)))
    async with a_board(empty_database_url) as board:
        page = await board.get("/a", headers={"Accept": "text/html"})
        assert page.status_code == 503 and "horsies init-db" in page.text
        assert (await board.get("/b")).text == "shown"


def fill_with_secrets(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "UPDATE horsies_tasks SET args = %(j)s, kwargs = %(o)s, result = %(r)s, failed_reason = %(t)s,"
            " task_options = %(o)s",
            {"j": json.dumps([SECRET]), "o": json.dumps({"x": SECRET}), "r": json.dumps({"ok": SECRET}), "t": SECRET},
        )
        conn.execute("UPDATE horsies_task_attempts SET error_message = %s, failed_reason = %s", [SECRET, SECRET])
        conn.execute("UPDATE horsies_task_progress SET message = %s", [SECRET])
        conn.execute("UPDATE horsies_task_logs SET lines = %s", [json.dumps([[1.0, "INFO", SECRET, SECRET]])])
        conn.execute("UPDATE horsies_workflows SET error = %s", [json.dumps({"message": SECRET})])
        conn.execute(
            "UPDATE horsies_workflow_tasks SET result = %s, task_kwargs = %s",
            [json.dumps({"ok": SECRET}), json.dumps({"x": SECRET})],
        )
        conn.execute("UPDATE horsies_schedules SET definition = jsonb_set(definition, '{kwargs}', %s)", [f'"{SECRET}"'])


async def test_m93_with_hidden_payloads_no_answer_has_one(filled_url: str) -> None:
    fill_with_secrets(filled_url)
    async with a_board(filled_url) as board:
        seen = [(await board.ask(endpoint, **THERE)).text for endpoint in ANSWERING]
        assert sum(SECRET in text for text in seen) >= 7, "it is there to be hidden"
    async with a_board(filled_url, hide_payloads=True) as board:
        for endpoint in ANSWERING:
            answer = await board.ask(endpoint, **THERE)
            assert answer.status_code == 200 and SECRET not in answer.text, name_of(endpoint)
        assert (await board.get("/api/meta")).json()["payloads_hidden"]


async def test_m93_payloads_are_masked_by_name_with_the_signatures_of_the_app(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    with an_app(database_url) as shop:

        @shop.task("log_in")
        def log_in(user: str, password: str) -> TaskResult[None, TaskError]:
            return TaskResult(ok=None)

        task = log_in.send("ada", SECRET).unwrap().task_id
        await given_attempt(db, task, error_message=f"wrong: {SECRET}")
        async with a_board(shop, mask=("password",)) as board:
            shown = (await board.get(f"/api/tasks/{task}")).json()
            assert json.loads(shown["args"]) == ["ada", "***"]
            assert shown["attempts"][0]["error_message"] == "wrong: ***"
        async with a_board(database_url, mask=("password",)) as board:
            shown = (await board.get(f"/api/tasks/{task}")).json()
            assert json.loads(shown["args"]) == ["***", "***"], "without the app nobody knows which is which"


async def test_m93_payloads_are_masked_by_a_function(database_url: str, db: AsyncConnection[Any]) -> None:
    task = await given_task(db, kwargs=json.dumps({"a": SECRET}), workflow_id=await given_workflow(db))

    def mask(task_name: str | None, field: str, value: Any) -> Any:
        return {"of": task_name} if field == "kwargs" else value

    async with a_board(database_url, mask=mask) as board:
        shown = (await board.get(f"/api/tasks/{task}")).json()
        assert json.loads(shown["kwargs"]) == {"of": "a_task"}


WITHOUT = """
import os, sys

import horsies, horsies.monitoring, horsies.cli.main
from horsies.cli.main import run

print([name for name in ("starlette", "jinja2", "uvicorn", "horsies.web") if name in sys.modules], flush=True)
for missing in ("starlette", "jinja2", "uvicorn"):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    sys.modules[missing] = None  # as if it were not installed
    code = run(["web", "--database-url", "postgresql://x@127.0.0.1:1/x"])
    print(f"without {missing}: {code}", file=sys.stderr, flush=True)
    os._exit(0)
"""


def test_m60_m90_the_dashboard_alone_imports_what_it_needs_and_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "[]", "nothing else imports it"
    assert "Traceback" not in done.stderr
    said = done.stderr
    for missing in ("starlette", "jinja2", "uvicorn"):
        mine, _, said = said.partition(f"without {missing}: 1\n")
        assert missing in mine and 'pip install "horsies-pg[web]"' in mine, done.stderr


def test_m60_a_source_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        create_monitoring_app("mysql://somewhere", auth_policy=AllowAll())
