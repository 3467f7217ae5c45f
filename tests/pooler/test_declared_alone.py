"""Only a pooled URL, and that is declared: what is slower then, and that it is said."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

from horsies import Horsies, PostgresConfig
from horsies.core.worker.pace import polling_pause
from tests.e2e.cli_support import run
from tests.metrics_support import free_port
from tests.pooler.conftest import Route
from tests.pooler.support import POOLED_APP, ROOT
from tests.support import eventually, eventually_sync

SLOWER = "notifications do not pass the transaction pooler, and there is no session_database_url"


def test_o01_a_session_url_is_not_required() -> None:
    config = PostgresConfig(database_url="postgresql://pooler:6432/shop", pgbouncer_transaction_mode=True)
    assert not config.has_sessions
    assert config.session_dsn() == config.dsn()


def test_o01_polls_grow_with_the_time_since_the_last_task() -> None:
    assert polling_pause(0.0, 5.0) == 0.02
    assert polling_pause(0.05, 5.0) == 0.02
    assert polling_pause(4.0, 5.0) == 1.0
    assert polling_pause(3600.0, 5.0) == 5.0
    assert polling_pause(0.0, 0.01) == 0.01


def test_o01_the_worker_says_once_what_is_slower(alone: Route, app_alone: Horsies) -> None:
    with alone.worker("--processes", "1") as worker:
        assert app_alone.tasks["add"].send(1, 2).unwrap().get(timeout_ms=30_000).ok == 3
        code, said = worker.stop()
    assert code == 0
    assert said.count(SLOWER) == 1
    assert "workers poll: every 20 ms while there is work, and up to every 1 s" in said


def test_o01_the_check_says_what_is_slower(alone: Route) -> None:
    done = run("check", POOLED_APP, "--live", cwd=ROOT, **alone.env)
    assert done.returncode == 1
    assert f"warning[HRS-219]: {SLOWER}" in done.stderr
    assert "workers poll: every 20 ms while there is work, and up to every 1 s" in done.stderr
    assert run("check", POOLED_APP, "--live", "--allow", "HRS-219", cwd=ROOT, **alone.env).returncode == 0


async def test_o01_nothing_listens_and_no_lock_of_a_session_is_held(alone: Route, app_alone: Horsies) -> None:
    with alone.worker("--processes", "1"):
        handle = app_alone.tasks["nap"].send(1.0).unwrap()
        waiting = asyncio.create_task(handle.get_async(timeout_ms=30_000))
        await alone.rows.until(handle.task_id, "RUNNING")
        assert await alone.bouncer.session_state() == []
        await eventually(lambda: _nobody_has_another_way(alone))  # a connection that the pooler closes takes a moment
        assert (await waiting).is_ok()
    assert await alone.bouncer.session_state() == []


async def _nobody_has_another_way(alone: Route) -> bool:
    everybody = await alone.rows.all(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    return {row["pid"] for row in everybody} <= {server["remote_pid"] for server in alone.bouncer.show("servers")}


async def test_o01_an_idle_worker_finds_what_comes(alone: Route, app_alone: Horsies) -> None:
    add = app_alone.tasks["add"]
    with alone.worker("--processes", "1"):
        for n in range(3):
            assert (await add.send(n, n).unwrap().get_async(timeout_ms=30_000)).ok == 2 * n
        await eventually(lambda: idle_for_a_while(alone))
        assert (await add.send(5, 5).unwrap().get_async(timeout_ms=30_000)).ok == 10


async def idle_for_a_while(route: Route) -> bool:
    found = await route.rows.all("SELECT 1 FROM horsies_tasks WHERE completed_at < now() - interval '3 seconds'")
    return bool(found)


def test_o01_a_worker_that_polls_is_ready(alone: Route) -> None:
    port = free_port()
    with alone.worker("--processes", "1", "--metrics-port", str(port)):

        def answer(path: str) -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
                    return str(reply.read().decode())
            except OSError as problem:
                raise AssertionError(str(problem)) from problem

        eventually_sync(lambda: answer("/readyz"), 30)
        # The alert for a lost listener must not go off for a worker that has none.
        assert "horsies_worker_listener_connected " not in answer("/metrics")


def test_o01_a_ping_says_why_nobody_answers(app_alone: Horsies) -> None:
    error = app_alone.ping_workers(timeout_seconds=0.1).unwrap_err()
    assert "session_database_url" in error.message
    assert not error.retryable


@pytest.mark.parametrize("notify", ["always", "when_waiting", "off"])
async def test_o01_who_waits_asks_for_no_notification(alone: Route, app_alone: Horsies, notify: str) -> None:
    """The notify mode of the database belongs to others, who may listen."""
    await alone.rows.all("UPDATE horsies_meta SET value = %s WHERE key = 'notify' RETURNING 1", notify)
    with alone.worker("--processes", "1"):
        assert (await app_alone.tasks["add"].send(1, 1).unwrap().get_async(timeout_ms=30_000)).ok == 2
        assert await alone.rows.all("SELECT * FROM horsies_waiting") == []


def test_o01_a_pooled_url_of_an_embedded_server_is_refused() -> None:
    with pytest.raises(ValueError, match="the embedded server has no pooler"):
        PostgresConfig(database_url="embedded:/nowhere", pgbouncer_transaction_mode=True)
