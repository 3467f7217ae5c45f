"""The files of docs/logging.md, served by a real worker: what its tasks log says whose it is, with `logging`, with
structlog, and in what a server of Sentry gets. That server is part of the test, and on this machine."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tests.e2e.cli_support import Started
from tests.e2e.page_support import blocks, imported
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

FILES = dict(blocks("logging"))
SHOP = FILES["shop.py"]
WITH_STRUCTLOG = """
import structured


@app.task("shop.order")
def order(number: int) -> None:
    structured.log.info("priced", order=number)


@app.task("shop.own_words")
def own_words() -> None:
    structured.log.info("said", task="mine")


structured.log.info("imported")
"""
WITH_SENTRY = """
import errors
from horsies import TaskError, TaskResult


@app.task("shop.divide", exception_mapper={LookupError: "NOT_FOUND"})
def divide(by: int, wanted: str = "result") -> TaskResult[float, TaskError]:
    if wanted == "error":
        return TaskResult(err=TaskError(error_code="REFUSED"))
    if wanted == "mapped":
        raise KeyError("no such order")
    if wanted == "crash":
        os._exit(3)
    return TaskResult(ok=1 / by)


@app.task("shop.divide_async")
async def divide_async(by: int) -> float:
    return 1 / by
"""


@contextlib.contextmanager
def worker_of(
    source: str, directory: Path, *options: str, monkeypatch: pytest.MonkeyPatch, **env: str
) -> Iterator[tuple[ModuleType, Started]]:
    """A worker that serves the source, beside the files of the page; and the module here, to send from."""
    for name, code in FILES.items():
        (directory / name).write_text(code)
    (directory / "shop.py").write_text(source)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with (
        Started("worker", "shop.py", *options, cwd=directory, **env) as worker,
        sender_of(source, directory, monkeypatch) as module,
    ):
        worker.until_it_says("worker ready")
        yield module, worker


@contextlib.contextmanager
def sender_of(source: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The same app in this process, without what would change the logging of all tests that come after."""
    structured = ModuleType("structured")
    structured.log = logging.getLogger("sender")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "structured", structured)
    monkeypatch.setitem(sys.modules, "errors", ModuleType("errors"))
    file = directory / "sender" / "shop.py"
    file.parent.mkdir()
    file.write_text(source.replace(FILES["handler.py"], ""))
    with imported(file) as module:
        yield module


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.slow("runs the code of a documentation page")
@pytest.mark.parametrize("form", ["text", "json"])
def test_p51_the_lines_of_a_task_say_whose_they_are(
    form: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SHOP + FILES["handler.py"]
    with worker_of(source, tmp_path, "--log-format", form, monkeypatch=monkeypatch, DATABASE_URL=database_url) as (
        shop,
        worker,
    ):
        handle = shop.price.send_or_raise(7)
        assert handle.result(30_000) == 700
        assert worker.stop() == 0, worker.said
    facts = {"task_id": handle.task_id, "task": "shop.price", "attempt": 1}
    if form == "text":
        [line] = [line for line in worker.said.splitlines() if "looking up order 7" in line]
        assert all(f"{name}={value}" in line for name, value in facts.items()), line
    else:
        lines = {line["message"]: line for line in objects(worker.said)}
        assert facts.items() <= lines["looking up order 7"].items() and facts.items() <= lines["found it"].items()
    assert f"INFO shop.price {handle.task_id} looking up order 7" in (tmp_path / "tasks.log").read_text()


def test_x23_structlog_events_of_a_task_say_whose_they_are(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SHOP + WITH_STRUCTLOG
    with worker_of(source, tmp_path, "--log-format", "json", monkeypatch=monkeypatch, DATABASE_URL=database_url) as (
        shop,
        worker,
    ):
        handle = shop.order.send_or_raise(7)
        handle.result(30_000)
        shop.own_words.send_or_raise().result(30_000)
        assert worker.stop() == 0, worker.said
    events = [line for line in objects(worker.said) if "event" in line]
    facts = {"task_id": handle.task_id, "task": "shop.order", "attempt": 1}
    assert {"event": "priced", "order": 7, "level": "info", **facts} in events
    assert [event["task"] for event in events if event["event"] == "said"] == ["mine"]
    outside = [event for event in events if event["event"] == "imported"]
    assert outside and all(event.keys() == {"event", "level"} for event in outside)


class Reports(BaseHTTPRequestHandler):
    """Takes the envelopes that the SDK sends, and keeps the events that are in them."""

    events: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        items = [json.loads(line) for line in body.splitlines() if line.startswith(b"{")]
        self.events.extend(content for head, content in pairwise(items) if head.get("type") == "event")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the output of a test is its own."""


@pytest.fixture
def reported() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address for the SDK, and the events that have arrived there."""
    handler = type("Kept", (Reports,), {"events": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://key@127.0.0.1:{server.server_port}/1", handler.events  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.slow("runs the code of a documentation page")
def test_x23_sentry_gets_what_nobody_expected_with_its_task(
    database_url: str,
    reported: tuple[str, list[dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dsn, events = reported
    env = {"DATABASE_URL": database_url, "SENTRY_DSN": dsn}
    options = ("--processes", "1", "--concurrency", "4")
    with worker_of(SHOP + WITH_SENTRY, tmp_path, *options, monkeypatch=monkeypatch, **env) as (shop, worker):
        codes = [shop.divide.send_or_raise(1, how).get(30_000).unwrap_err().code for how in ("error", "mapped")]
        assert codes == ["REFUSED", "NOT_FOUND"]
        raised = [shop.divide.send_or_raise(0), *(shop.divide_async.send_or_raise(0) for _ in range(3))]
        assert {one.get(30_000).unwrap_err().code for one in raised} == {"UNHANDLED_EXCEPTION"}
        # The SDK sends in the background: what a child has not sent when it crashes is lost.
        eventually_sync(lambda: len(events) >= 4, what="the events of exceptions arrive")
        crashed = shop.divide.send_or_raise(1, "crash")
        assert crashed.get(30_000).unwrap_err().code == "WORKER_CRASHED"
        eventually_sync(lambda: len(events) >= 5, what="the events arrive")
        assert worker.stop() == 0, worker.said
    exceptions = [event for event in events if "exception" in event]
    told = {event["tags"]["task_id"]: (event["transaction"], event["tags"]["attempt"]) for event in exceptions}
    names = ["shop.divide", *["shop.divide_async"] * 3]
    assert told == {one.task_id: (name, "1") for one, name in zip(raised, names, strict=True)}
    for event in exceptions:
        [value] = event["exception"]["values"]
        assert value["type"] == "ZeroDivisionError"
        assert value["stacktrace"]["frames"][-1]["function"] == event["transaction"].rpartition(".")[2]
    [other] = [event for event in events if "exception" not in event]
    assert "WORKER_CRASHED" in json.dumps(other) and crashed.task_id in json.dumps(other)
