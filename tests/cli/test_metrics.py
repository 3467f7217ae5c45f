"""`horsies metrics`: the numbers of a database, once or for Prometheus; and a scheduler's own port."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.schedule import ScheduleConfig
from horsies.core.worker.scheduler_process import LATE_S, SchedulerProcess, exposed, problems
from tests.cli.support import Terminal
from tests.metrics_support import fetch, free_port, readiness, scrape, series_of, value
from tests.support import eventually, eventually_sync


def test_metrics_once_prints_what_prometheus_would_read(terminal: Terminal) -> None:
    for _ in range(3):
        terminal.given(task_name="mail.send")
    typed = terminal.type("metrics", "--once")
    seen = series_of(typed.out)
    assert value(seen, "horsies_database_up") == 1
    assert value(seen, "horsies_queue_tasks", queue="default", state="due") == 3
    assert value(seen, "horsies_tasks", status="PENDING", queue="default", task="mail.send") == 3
    assert not any(name.startswith("horsies_worker_") for name, _ in seen), "it is no worker"


def test_s38_without_the_app_only_schedules_of_the_database_can_be_late(terminal: Terminal) -> None:
    """One that left the code would else be late for ever: its state stays, and nobody here knows the code."""
    terminal.execute(
        "INSERT INTO horsies_schedule_state (schedule_name, next_run_at, run_count)"
        " VALUES ('removed', now() - interval '1 day', 7), ('put', now() - interval '1 day', 0)"
    )
    terminal.execute("INSERT INTO horsies_schedules (name, definition) VALUES ('put', '{}')")
    seen = series_of(terminal.type("metrics", "--once").out)
    assert (value(seen, "horsies_schedule_lag_seconds", schedule="put") or 0) >= 86_400
    assert not [labels for name, labels in seen if "schedule" in name and ("schedule", "removed") in labels]


def test_metrics_once_of_a_database_that_does_not_answer_is_an_error(terminal: Terminal) -> None:
    url = f"postgresql://horsies:secret-word@127.0.0.1:{free_port()}/none"
    typed = terminal.type_plain("metrics", "--once", "--database-url", url, code=1)
    assert "the database did not answer" in typed.err and "secret-word" not in typed.err + typed.out


@pytest.mark.e2e
def test_metrics_serves_until_it_is_told_to_stop(database_url: str) -> None:
    port = free_port()
    command = [sys.executable, "-m", "horsies.cli.main", "metrics", "--port", str(port)]
    process = subprocess.Popen(
        command, env={**os.environ, "DATABASE_URL": database_url}, stderr=subprocess.PIPE, text=True
    )
    try:
        assert eventually_sync(lambda: readiness(port), 30) == (200, {})
        assert fetch(port, "/healthz")[0] == 200 and fetch(port, "/other")[0] == 404
        assert value(scrape(port), "horsies_database_up") == 1
        text = fetch(port, "/metrics", accept="application/openmetrics-text")[1]
        assert text.endswith("# EOF\n")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()


async def test_s40_a_scheduler_with_a_port_says_whether_it_makes_checks(database_url: str) -> None:
    port = free_port()
    config = AppConfig(
        broker=PostgresConfig(database_url=database_url), schedule=ScheduleConfig(check_interval_seconds=1)
    )
    process = SchedulerProcess(Horsies(config))
    async with exposed(process, config, "127.0.0.1", port):
        assert await asyncio.to_thread(readiness, port) == (503, {"starting": "no check has succeeded yet"})
        running = asyncio.create_task(process.run())
        try:
            await eventually(lambda: asyncio.to_thread(lambda: readiness(port) == (200, {})), what="it is ready")
            seen = await asyncio.to_thread(scrape, port)
            assert value(seen, "horsies_scheduler_ready") == 1
            assert (value(seen, "horsies_scheduler_check_age_seconds") or 0) < 60
            process.request_stop()
            assert (await asyncio.to_thread(readiness, port))[1].keys() == {"stopping"}
        finally:
            process.request_stop()
            assert await running == 0


@pytest.mark.parametrize(
    ("signs", "what"),
    [
        ({"is_stopping": False, "check_age_s": 1.0}, set()),
        ({"is_stopping": False, "check_age_s": 3 * 2.0 + LATE_S + 1}, {"checking"}),
        ({"is_stopping": False, "check_age_s": None}, {"starting"}),
        ({"is_stopping": True, "check_age_s": 1.0}, {"stopping"}),
    ],
)
def test_s40_a_scheduler_is_ready_while_its_checks_succeed(signs: dict[str, object], what: set[str]) -> None:
    assert problems(**signs, interval_s=2.0).keys() == what  # type: ignore[arg-type]
