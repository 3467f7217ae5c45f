"""A real uvicorn that is told to stop while requests wait for results (X-21). It has no time limit of its own for that,
so a server that waited for them would not end within the test's patience."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.contrib.served import app
from tests.contrib.uvicorn_support import Uvicorn
from tests.support import eventually_sync

SERVED = "tests.contrib.served:api"


@contextmanager
def asking(url: str, paths: list[str]) -> Iterator[list[Future[str]]]:
    """Clients that ask for something that does not end, and their answers."""
    with ThreadPoolExecutor(len(paths)) as clients:
        yield [clients.submit(lambda path: httpx.get(url + path, timeout=200).text, path) for path in paths]


def has_live_stream(url: str) -> bool:
    with app.testing.on_database(url):
        marks = app.get_broker().bridge.run(_read_marks)
    return marks > 0


async def _read_marks() -> int:
    async with app.get_broker().hub.connection() as conn:
        row = await (await conn.execute("SELECT count(*) FROM horsies_waiting WHERE topic = 'monitor'")).fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.parametrize(
    "sig",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow("the same story with another signal"))],
    ids=lambda sig: sig.name,
)
def test_x21_a_server_stops_while_requests_wait(database_url: str, sig: signal.Signals) -> None:
    with Uvicorn(SERVED, DATABASE_URL=database_url) as server:
        task = httpx.post(f"{server.url}/tasks/21").json()
        waits = [f"/{way}/{task}" for way in ("waited", "blocked", "watched")]
        with asking(server.url, [*waits, "/jobs/api/events"]) as answers:
            server.until_it_says("a request waits", count=3)
            eventually_sync(lambda: has_live_stream(database_url), 60)
            server.stop(sig)
            waited, blocked, watched, events = [answer.result(60) for answer in answers]
    assert "WAIT_INTERRUPTED" in waited and "WAIT_INTERRUPTED" in blocked, "a value, and no broken connection"
    assert watched == "data: PENDING\n\n" and ": listening" in events, "the streams end"
    assert "Application shutdown complete" in server.said and "Traceback" not in server.said

    with app.testing.on_database(database_url):
        assert [ended.result.unwrap() for ended in app.testing.drain()] == [42], "the task has gone on"
    with Uvicorn(SERVED, DATABASE_URL=database_url) as server:
        assert "42" in httpx.get(f"{server.url}/waited/{task}").json()
        server.stop()


@pytest.mark.slow("several processes, started cold")
def test_x21_so_do_several_processes(database_url: str) -> None:
    with Uvicorn(SERVED, "--workers", "2", DATABASE_URL=database_url) as server:
        server.until_it_says("startup (complete)", count=2)
        task = httpx.post(f"{server.url}/tasks/21").json()
        with asking(server.url, [f"/waited/{task}"] * 6) as answers:
            server.until_it_says("a request waits", count=6)
            server.stop()
            assert all("WAIT_INTERRUPTED" in answer.result(60) for answer in answers)
    assert server.said.count("Application shutdown complete") == 2 and "Traceback" not in server.said


@pytest.mark.slow("several processes, started cold")
def test_x21_a_reload_does_not_wait_for_requests_either(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop_site.py").write_text("from tests.contrib.served import api\n")
    path = os.pathsep.join([os.getcwd(), str(tmp_path)])
    options = ("--reload", "--app-dir", str(tmp_path))
    with Uvicorn("shop_site:api", *options, cwd=tmp_path, PYTHONPATH=path, DATABASE_URL=database_url) as server:
        for number in range(1, 3):
            process = httpx.get(f"{server.url}/process").json()
            task = httpx.post(f"{server.url}/tasks/{number}").json()
            with asking(server.url, [f"/waited/{task}", f"/blocked/{task}"]) as answers:
                server.until_it_says("a request waits", count=2 * number)
                (tmp_path / "shop_site.py").write_text(f"from tests.contrib.served import api  # {number}\n")
                server.until_it_says("startup (complete)", count=number + 1)
                assert all("WAIT_INTERRUPTED" in answer.result(60) for answer in answers)
            assert httpx.get(f"{server.url}/process").json() != process
        server.stop()
