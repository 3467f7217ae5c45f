"""`manage.py horsies ...`, and workers of a Django project as real processes (X-20)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import psutil
import pytest

from tests.django.conftest import rows, with_versions
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e
ENDED = "SELECT count(*) FROM horsies_tasks WHERE ended_at IS NOT NULL"
Start = Callable[..., "Popen[str]"]


def wait_for(url: str, ended: int) -> None:
    eventually_sync(lambda: rows(url, ENDED)[0][0] >= ended, timeout=40, what=f"the end of {ended} tasks")


def test_x20_a_worker_of_manage_py_runs_tasks_of_both_kinds(shop: str, started: Start, tmp_path: Path) -> None:
    from bookshop.models import Order
    from bookshop.tasks import broken, greet, ship, ship_async, welcome, where, where_async

    (tmp_path / "mine.py").write_text("from site_of_shop.settings import *\n")
    order = Order.objects.create(name="a")
    ours = [ship.send(order.pk).unwrap(), ship_async.send(order.pk).unwrap()]
    places = [where.send(0.2).unwrap() for _ in range(6)]
    theirs = [welcome.enqueue("ada", loud=True), greet.enqueue("bob"), broken.enqueue("luck")]
    options = ("--settings=mine", "--pythonpath", str(tmp_path))
    worker = started(shop, "manage.py", "horsies", "worker", *options, "--processes", "2")
    assert [handle.get(timeout_ms=40_000).unwrap() for handle in ours] == ["a", "a"]
    found = [handle.get(timeout_ms=40_000).unwrap() for handle in places]
    awaited = where_async.send().unwrap().get(timeout_ms=40_000).unwrap()
    wait_for(shop, 12)
    for result in theirs:
        result.refresh()
    assert [result.status for result in theirs] == ["SUCCESSFUL", "SUCCESSFUL", "FAILED"]
    assert [result.attempts for result in theirs] == [1, 1, 1]
    # CONN_MAX_AGE is 0: each task has a session of its own, and none is shared by two processes.
    assert len({pid for pid, _ in found}) == 2
    assert len({session for _, session in found}) == len(found)
    assert worker.pid not in {pid for pid, _ in found}
    assert order.pk and Order.objects.get().is_shipped

    def sessions_of_tasks() -> bool:
        left = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"
        return rows(shop, left, [session for _, session in [*found, awaited]]) == [(0,)]

    eventually_sync(sessions_of_tasks)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(20) == 0


@with_versions
def test_x20_a_worker_that_is_killed_is_recovered_once(shop: str, started: Start, tmp_path: Path) -> None:
    from bookshop.tasks import mark

    from horsies import RetryPolicy

    file = tmp_path / "marks"
    policy = RetryPolicy.fixed([1], auto_retry_for=["WORKER_CRASHED"])
    handle = mark.with_options(retry_policy=policy).send(str(file), 60.0).unwrap()
    first = started(shop, "manage.py", "horsies", "worker", "--processes", "1")
    eventually_sync(lambda: file.is_file() and file.read_text().strip(), timeout=40)
    for process in [*psutil.Process(first.pid).children(recursive=True), psutil.Process(first.pid)]:
        process.kill()
    first.wait(20)
    started(shop, "-m", "horsies", "worker", "site_of_shop.jobs:app", "--processes", "1")
    assert handle.get(timeout_ms=60_000).unwrap()
    assert len(file.read_text().splitlines()) == 2
    attempts = rows(shop, "SELECT outcome FROM horsies_task_attempts ORDER BY attempt")
    assert attempts == [("WORKER_FAILURE",), ("COMPLETED",)]


def test_x20_the_commands_know_the_app(shop: str, capfd: pytest.CaptureFixture[str]) -> None:
    from django.core.management import CommandError, call_command

    from horsies.contrib.django import app

    def said(*words: str) -> str:
        capfd.readouterr()
        call_command("horsies", *words)
        return capfd.readouterr().out

    sent = said("send", "bookshop.tasks.pay", "--", "--kwargs", '{"card": "1", "amount": 3}')
    [(task_id,)] = rows(shop, "SELECT id FROM horsies_tasks")
    assert task_id in sent
    assert json.loads(said("task", task_id, "--", "--json"))["task_name"] == "bookshop.tasks.pay"
    assert "no worker" in said("explain", task_id)
    assert "bookshop.tasks.pay" in said("tasks")
    said("cancel", task_id)
    assert rows(shop, "SELECT status FROM horsies_tasks") == [("CANCELLED",)]
    said("check")
    with pytest.raises(CommandError):
        said("explain", "nothing")
    assert app.is_on_django


def test_x20_a_mistake_in_a_command_names_the_command(
    _django: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from horsies.cli.main import run
    from horsies.contrib.django.management.commands import horsies as command

    ended: list[int] = []
    monkeypatch.setattr(command, "run_and_exit", lambda *given: ended.append(run(*given)))
    command.Command().run_from_argv(["manage.py", "horsies", "tasks", "--no-color", "--statuss", "x"])
    assert (ended, "manage.py horsies tasks --help" in capfd.readouterr().err) == ([1], True)


def test_x20_options_of_django_are_left_to_django(_django: None) -> None:
    from horsies.contrib.django.management.commands.horsies import without_django_options

    words = ["worker", "--settings", "a", "--pythonpath=b", "--no-color", "--queues", "x"]
    assert without_django_options(words) == ["worker", "--queues", "x"]
