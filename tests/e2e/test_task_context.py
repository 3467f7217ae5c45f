"""A task knows itself (P-01, P-02, P-51), and hooks know of it; with a real worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.e2e.conftest import imported
from tests.support import eventually_sync
from tests.worker_support import ROOT, WorkerProcess

KNOWING = f"{ROOT / 'tests' / 'apps' / 'knowing.py'}:app"
HANGING = f"{ROOT / 'tests' / 'apps' / 'hanging.py'}:app"


@pytest.fixture
def shop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.delenv("HOOKED", raising=False)
    with imported("knowing", database_url, monkeypatch) as module:
        yield module


@pytest.fixture
def hanging(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    with imported("hanging", database_url, monkeypatch) as module:
        yield module


def test_p01_p02_p51_a_task_knows_itself_and_its_log_lines_say_whose_they_are(shop: Any, database_url: str) -> None:
    with WorkerProcess(database_url, "--log-format", "json", locator=KNOWING) as worker:
        sent = shop.know.send_or_raise(again=True)
        first = sent.result(30_000)
        others = [shop.know_async.send_or_raise(number) for number in range(3)]
        found = [other.result(30_000) for other in others]
        code, said = worker.stop()
    assert code == 0
    assert first["task_id"] == sent.task_id and first["task_name"] == "know" and first["queue"] == "default"
    assert first["attempt"] == 2 and first["is_due"] and not first["is_stopping"] and first["workflow"] is None
    assert first["fence"] == [sent.task_id, 2]
    assert [one["number"] for one in found] == [0, 1, 2]
    assert [one["task_id"] for one in found] == [other.task_id for other in others]
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    told = [(line["task_id"], line["task"], line["attempt"]) for line in lines if line["logger"] == "shop"]
    assert told == [(sent.task_id, "know", 1), (sent.task_id, "know", 2)]
    mine = {line["message"]: line["task_id"] for line in lines if line["logger"] == "horsies.task.know_async"}
    assert mine == {f"number {number}": other.task_id for number, other in enumerate(others)}


def test_p02_a_node_knows_its_workflow_and_itself(shop: Any, database_url: str) -> None:
    first = shop.know.node(node_id="first")()
    spec = shop.app.workflow("alone", [first], output=first, definition_key="knowing.alone")
    with WorkerProcess(database_url, locator=KNOWING) as worker:
        handle = spec.start().unwrap()
        found = handle.get(30_000).unwrap()
        worker.stop()
    assert found["workflow"] == [handle.workflow_id, "first"]


def test_t27_an_exception_that_nobody_expects_is_logged_with_its_traceback(shop: Any, database_url: str) -> None:
    with WorkerProcess(database_url, "--log-format", "json", locator=KNOWING) as worker:
        assert shop.fail.send_or_raise("network").get(30_000).unwrap_err().code == "NO_NETWORK"
        other = shop.fail.send_or_raise("other")
        assert other.get(30_000).unwrap_err().code == "UNHANDLED_EXCEPTION"
        _, said = worker.stop()
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    [line] = [line for line in lines if line["logger"] == "horsies.task" and line["level"] == "ERROR"]
    assert line["task_id"] == other.task_id and line["message"] == "task fail raised ZeroDivisionError"
    assert "knowing.py" in line["exception"] and "oh no" in line["exception"]


def test_p02_a_task_is_told_that_its_worker_leaves(shop: Any, database_url: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with WorkerProcess(database_url, locator=KNOWING, env={"NOTES": str(notes)}) as worker:
        sent = shop.wait_until_told.send_or_raise()
        eventually_sync(notes.exists, what="the task runs")
        code, _ = worker.stop()
    assert code == 0 and sent.result(5_000) == "told"


def test_x05_hooks_see_every_task_and_lose_no_result(shop: Any, database_url: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    env = {"NOTES": str(notes), "HOOKED": "1"}
    with WorkerProcess(database_url, "--processes", "1", locator=KNOWING, env=env) as worker:
        shop.know.send_or_raise().result(30_000)
        assert shop.fail.send_or_raise("other").get(30_000).unwrap_err().code == "UNHANDLED_EXCEPTION"
        assert shop.know_async.send_or_raise(7).result(30_000)["number"] == 7
        _, said = worker.stop()
    assert notes.read_text().splitlines() == [
        "before know 1", "enter know", "leave know", "after know ok",
        "before fail 1", "enter fail", "swallowed", "leave fail", "after fail UNHANDLED_EXCEPTION",
        "failed fail UNHANDLED_EXCEPTION",
        "before know_async 1", "enter know_async", "enter async know_async", "leave know_async", "after know_async ok",
    ]  # fmt: skip
    assert said.count("the hook before raised; the task goes on without it") == 3
    assert said.count("the hook after raised; the task goes on without it") == 3
    assert said.count("the hook around_async raised; the task goes on without it") == 1


def test_x05_t30_a_result_is_kept_when_a_hook_after_it_takes_too_long(
    hanging: Any, database_url: str, tmp_path: Path
) -> None:
    with WorkerProcess(database_url, locator=HANGING) as worker:
        sent = [
            hanging.work.send_or_raise("after", str(tmp_path / "sync")),
            hanging.a_work.send_or_raise("after async", str(tmp_path / "async")),
            hanging.work.send_or_raise("inner", str(tmp_path / "around")),
        ]
        assert [one.result(30_000) for one in sent] == ["the result"] * 3
        failed = hanging.work.send_or_raise("failed", str(tmp_path / "failed"), fails=True)
        assert failed.get(30_000).unwrap_err().code == "UNHANDLED_EXCEPTION"
        code, said = worker.stop()
    assert code == 0 and "SIGTERM" not in said
    for hook in ("after", "after_async", "inner", "failed"):
        assert (
            said.count(f"the hook {hook} was stopped with its task, whose function had ended; its result is kept") == 1
        )


def test_x05_t30_a_hook_that_does_not_stop_takes_its_child_and_the_result_along(
    hanging: Any, database_url: str, tmp_path: Path
) -> None:
    with WorkerProcess(database_url, locator=HANGING) as worker:
        sent = hanging.work.send_or_raise("stubborn", str(tmp_path / "notes"))
        assert sent.get(30_000).unwrap_err().code == "TASK_TIMEOUT"
        worker.stop()
    assert "goes on" in (tmp_path / "notes").read_text()
