"""`horsies web` as a real process (M-05, M-60, M-61, M-93): it serves, says where, refuses an open door, and ends when
it is told to, also with clients that never leave."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import AsyncConnection

from tests.e2e.cli_support import APP, Started, run
from tests.factories import given_task
from tests.support import eventually

pytestmark = pytest.mark.e2e
TOKEN = "correct horse battery staple"
URL = r"http://\S+"


@asynccontextmanager
async def served(cwd: Path, *args: str, **env: str) -> AsyncIterator[tuple[Started, httpx.AsyncClient]]:
    """The command on a free port, and a client of it."""
    with Started("web", "--port", "0", *args, cwd=cwd, **env) as started:
        said = await asyncio.to_thread(started.until_it_says, f"dashboard: {URL}")
        url = said.removeprefix("dashboard: ")
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            yield started, client


@asynccontextmanager
async def watching(client: httpx.AsyncClient) -> AsyncIterator[list[str]]:
    """The lines of an event stream, as they arrive."""
    lines: list[str] = []
    async with client.stream("GET", "/api/events") as answer:
        assert answer.status_code == 200

        async def read() -> None:
            async for line in answer.aiter_lines():
                lines.append(line)
            lines.append("(the end)")

        reading = asyncio.create_task(read())
        await eventually(lambda: ": listening" in lines)
        try:
            yield lines
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_m05_m60_it_serves_a_database_and_says_where(
    tmp_path: Path, database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(db, args='["shown"]')
    async with served(tmp_path, "--database-url", database_url) as (started, client):
        answer = await client.get(f"/api/tasks/{task}")
        assert answer.json()["args"] == '["shown"]'
        assert "server" not in answer.headers and answer.headers["x-frame-options"] == "DENY"
        meta = (await client.get("/api/meta")).json()
        assert not meta["actions_enabled"] and not meta["has_app"]
        refused = await client.post(f"/api/tasks/{task}/cancel", headers={"X-Horsies-Intent": "action"})
        assert refused.status_code == 403 and refused.json()["code"] == "ACTIONS_DISABLED"
        assert (await client.get("/api/meta", headers={"Host": "example.org"})).status_code == 400
        large = await client.post("/api/recovery/sweep", content=b"x" * 70_000)
        assert large.status_code in (403, 413)
        assert (await client.get("/api/meta")).status_code == 200, "on the same connection, or on another"
        assert await asyncio.to_thread(started.stop) == 0
        assert "GET" not in started.said, "there is no access log"


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
async def test_m60_m75_it_ends_with_open_streams(
    tmp_path: Path, database_url: str, db: AsyncConnection[Any], sig: signal.Signals
) -> None:
    async with (
        served(tmp_path, "--database-url", database_url) as (started, client),
        watching(client) as one,
        watching(client) as other,
    ):
        task = await given_task(db)
        for lines in (one, other):
            await eventually(lambda lines=lines: any(task in line for line in lines), what="an event")
        assert await asyncio.to_thread(started.stop, sig) == 0
        await eventually(lambda: one[-1] == other[-1] == "(the end)", what="the streams end cleanly")
        assert "Traceback" not in started.said
    row = await (await db.execute("SELECT count(*) FROM horsies_waiting WHERE topic = 'monitor'")).fetchone()
    assert row == (0,)


async def test_m60_an_app_is_served_with_its_actions(
    tmp_path: Path, database_url: str, db: AsyncConnection[Any]
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    task = await given_task(db)
    args = ("shop", "--enable-actions", "--hide-payloads")
    async with served(tmp_path, *args, SHOP_DATABASE_URL=database_url) as (_, client):
        meta = (await client.get("/api/meta")).json()
        assert meta["has_app"] and meta["can_act"] and meta["payloads_hidden"]
        done = await client.post(f"/api/tasks/{task}/cancel", headers={"X-Horsies-Intent": "action"})
        assert done.status_code == 200


async def test_m93_names_on_the_command_line_are_masked(
    tmp_path: Path, database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(db, kwargs='{"card": "4111-1111", "pin": "9876-5432", "to": "ann@example.com"}')
    args = ("--database-url", database_url, "--mask", "card", "--mask", "PIN")
    async with served(tmp_path, *args) as (_, client):
        for path in (f"/api/tasks/{task}", f"/tasks/{task}", "/tasks"):
            shown = (await client.get(path)).text
            assert "ann@example.com" in shown and "***" in shown, path
            assert "4111" not in shown and "9876" not in shown, path


async def test_m93_a_token_from_the_environment_or_a_file(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    for args, env in [(("--token-file", "token"), {}), ((), {"HORSIES_WEB_TOKEN": TOKEN})]:
        args = ("--database-url", database_url, "--auth", "token", *args)
        async with served(tmp_path, *args, **env) as (started, client):
            assert (await client.get("/api/meta")).status_code == 403
            assert (await client.post("/login", data={"token": "wrong"})).status_code == 403
            assert (await client.post("/login", data={"token": TOKEN})).status_code == 303
            assert (await client.get("/api/meta")).status_code == 200
            assert TOKEN not in started.said


async def test_m60_a_trusted_header_names_who_looks(tmp_path: Path, database_url: str) -> None:
    args = ("--database-url", database_url, "--auth", "trusted-header", "--trusted-header", "X-Who")
    args += ("--host", "0.0.0.0", "--allowed-host", "jobs.example.com")
    async with served(tmp_path, *args) as (_, client):
        at = {"Host": "jobs.example.com"}
        address = str(client.base_url).replace("0.0.0.0", "127.0.0.1")
        assert (await client.get(f"{address}/api/meta", headers=at)).status_code == 403
        assert (await client.get(f"{address}/api/meta", headers={**at, "X-Who": "ada"})).status_code == 200
        assert (await client.get(f"{address}/api/meta", headers={"X-Who": "ada"})).status_code == 400


@pytest.mark.slow("waits for a limit of ten seconds")
async def test_m93_a_connection_that_says_nothing_is_closed(tmp_path: Path, database_url: str) -> None:
    async with served(tmp_path, "--database-url", database_url) as (_, client):
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
        assert (await client.get("/api/meta")).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_m61_without_a_policy_it_listens_on_this_machine_only(tmp_path: Path, host: str) -> None:
    done = run("web", "--host", host, "--database-url", "postgresql://x@127.0.0.1:1/x", cwd=tmp_path)
    assert done.returncode == 1 and "--auth none lets everybody in" in done.stderr and "--auth token" in done.stderr


def test_m60_a_port_that_is_taken_is_a_plain_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("web", "--port", port, "--database-url", "postgresql://x@127.0.0.1:1/x", cwd=tmp_path)
    assert done.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--auth", "token"), "HORSIES_WEB_TOKEN is not set"),
        (("--auth", "token", "--token-file", "nowhere"), "cannot be read"),
        (("--auth", "token", "--token-file", "empty"), "has no token"),
        (("--auth", "token", "--token-file", "short"), "at least 16 characters"),
        (("--token-file", "empty"), "--auth token"),
        (("--auth", "everybody"), "trusted-header"),
        (("--auth", "trusted-header", "--trusted-header", "X User"), "not the name of a header"),
        (("--host", "no such host"), "cannot listen"),
        (("--session-database-url", "mysql://x"), "session_database_url"),
        (("no_such_module",), "no_such_module"),
    ],
)
def test_m11_m60_mistakes_are_said_before_anything_is_opened(tmp_path: Path, args: tuple[str, ...], said: str) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "short").write_text("secret\n")
    done = run("web", *args, "--database-url", "postgresql://x:pass-word@127.0.0.1:1/x", "--port", "0", cwd=tmp_path)
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert "pass-word" not in done.stderr and "Traceback" not in done.stderr and "dashboard: " not in done.stderr


def test_m21_an_app_with_mistakes_is_not_served(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "shop.py").write_text(f"{APP}\napp.discover_tasks(['nosuchmodule'])\n")
    done = run("web", "shop", "--port", "0", cwd=tmp_path, SHOP_DATABASE_URL=database_url)
    assert done.returncode == 1 and "nosuchmodule" in done.stderr


async def test_m64_it_waits_for_a_database_that_is_not_there_yet(tmp_path: Path, empty_database_url: str) -> None:
    async with served(tmp_path, "--database-url", empty_database_url) as (_, client):
        absent = await client.get("/api/tasks")
        assert absent.status_code == 503 and json.loads(absent.text)["code"] == "SCHEMA_ABSENT"
        done = await asyncio.to_thread(run, "init-db", "--database-url", empty_database_url, cwd=tmp_path)
        assert done.returncode == 0

        async def is_there() -> bool:
            return (await client.get("/api/tasks")).status_code == 200

        await eventually(is_there, 30)
    with psycopg.connect(empty_database_url) as conn:
        assert conn.execute("SELECT count(*) FROM horsies_tasks").fetchone() == (0,)
