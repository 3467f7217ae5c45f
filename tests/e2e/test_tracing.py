"""A trace from `send()` through a real worker and its children, and through workflows: every process tells its part."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.e2e.conftest import load
from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess

pytestmark = pytest.mark.e2e

TRACED = ROOT / "tests" / "apps" / "traced.py"
SECRET = "a-secret-argument"


@pytest.fixture
async def traced(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The app of `tests/apps/traced.py`, in this process as in the worker's."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SPANS", str(tmp_path / "spans"))
    module: Any = load(TRACED)
    yield module
    await module.app.get_broker().close_async()
    del sys.modules[module.__name__]


def told(path: Path) -> list[dict[str, Any]]:
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    provider.force_flush()
    return [json.loads(line) for line in path.read_text().splitlines()]


def one(spans: list[dict[str, Any]], name: str, **facts: Any) -> dict[str, Any]:
    (found,) = [
        span
        for span in spans
        if span["name"] == name and all(span["attributes"].get(k.replace("__", ".")) == v for k, v in facts.items())
    ]
    return found


async def test_a_trace_goes_from_send_through_the_worker_and_through_workflows(
    traced: Any, database_url: str, rows: Rows, tmp_path: Path
) -> None:
    tracer = trace.get_tracer("test")
    with WorkerProcess(database_url, locator=f"{TRACED}:app") as worker:
        with tracer.start_as_current_span("request") as request:
            handle = (await traced.add.send_async(1, 2)).unwrap()
            assert (await handle.get_async(timeout_ms=60_000)).unwrap() == 3
            passing = traced.passes_on.schedule(0, 7).unwrap()
            failing = traced.fails.send(SECRET).unwrap()
            two = traced.add.send_many([(1,), (2,)]).unwrap()
            flow = (await traced.outer().start_async()).unwrap()
            flow_result = await flow.get_async(timeout_ms=60_000)
        assert flow_result.unwrap() == 5, flow_result
        untraced = traced.add.send(0).unwrap()
        for each in (passing, failing, *two, untraced):
            await each.get_async(timeout_ms=60_000)
        await until_idle(rows)
        code, output = await asyncio.to_thread(worker.stop)
        assert code == 0, output
    spans = told(tmp_path / "spans")
    trace_id = f"{request.get_span_context().trace_id:032x}"

    check_one_task(spans, handle.task_id, trace_id, worker.process.pid)
    check_what_it_sent(spans, passing.task_id)
    check_failure(spans, failing.task_id)
    batch = one(spans, "send traced.add", messaging__batch__message_count=2)
    assert {one(spans, "run traced.add", messaging__message__id=t.task_id)["parent"] for t in two} == {batch["id"]}
    check_workflow(spans, trace_id)
    alone = one(spans, "run traced.add", messaging__message__id=untraced.task_id)
    assert alone["parent"] is None and alone["trace"] != trace_id, "a trace of its own"
    assert (await rows.task(untraced.task_id))["task_options"] is None, "and nothing was stored for it"


async def test_a_task_that_goes_back_to_the_queue_has_no_end_in_its_trace(
    traced: Any, database_url: str, rows: Rows, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with trace.get_tracer("test").start_as_current_span("request"):
        first = (await traced.blocks.send_async(str(gate))).unwrap()
        behind = (await traced.add.send_async(1, 2)).unwrap()
    with WorkerProcess(database_url, locator=f"{TRACED}:app", env={"PREFETCH": "1"}) as worker:
        await rows.until(first.task_id, "RUNNING")
        await rows.until(behind.task_id, "CLAIMED", "RUNNING")
        worker.process.send_signal(signal.SIGTERM)
        await rows.until(behind.task_id, "PENDING")
        gate.touch()
        code, output = await asyncio.to_thread(worker.wait)
        assert code == 0, output
    assert "finalize traced.blocks" in names(told(tmp_path / "spans"), first.task_id)
    assert not {"run traced.add", "finalize traced.add"} & names(told(tmp_path / "spans"), behind.task_id)
    with WorkerProcess(database_url, locator=f"{TRACED}:app") as worker:
        await rows.until(behind.task_id, "COMPLETED")
        code, output = await asyncio.to_thread(worker.stop)
        assert code == 0, output
    end = one(told(tmp_path / "spans"), "finalize traced.add", messaging__message__id=behind.task_id)
    assert end["attributes"]["horsies.task.move"] == "complete"


def names(spans: list[dict[str, Any]], task_id: str) -> set[str]:
    return {span["name"] for span in spans if span["attributes"].get("messaging.message.id") == task_id}


async def until_idle(rows: Rows) -> None:
    async def open_tasks() -> bool:
        (row,) = await rows.all("SELECT count(*) AS n FROM horsies_tasks WHERE ended_at IS NULL")
        return bool(row["n"] == 0)

    await eventually(open_tasks, 60, what="everything has ended")


def check_one_task(spans: list[dict[str, Any]], task_id: str, trace_id: str, supervisor: int) -> None:
    """send → (wait, run, finalize), the run in a child, the others in the supervisor, and the code inside the run."""
    sent = one(spans, "send traced.add", messaging__message__id=task_id)
    assert (sent["trace"], sent["kind"], sent["parent"]) == (trace_id, "PRODUCER", one(spans, "request")["id"])
    parts = {
        name: one(spans, f"{name} traced.add", messaging__message__id=task_id) for name in ("wait", "run", "finalize")
    }
    assert {part["parent"] for part in parts.values()} == {sent["id"]}
    assert {part["trace"] for part in parts.values()} == {trace_id}
    assert parts["wait"]["pid"] == parts["finalize"]["pid"] == supervisor
    assert parts["run"]["pid"] not in (supervisor, sent["pid"]) and parts["run"]["kind"] == "CONSUMER"
    assert parts["finalize"]["attributes"]["horsies.task.move"] == "complete"
    assert all(part["seconds"] >= 0 for part in parts.values())
    assert parts["run"]["attributes"] == {
        "messaging.system": "horsies",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.message.id": task_id,
        "messaging.destination.name": "default",
        "horsies.task.name": "traced.add",
        "horsies.task.attempt": 1,
    }
    assert [span for span in spans if span["name"] == "inside" and span["parent"] == parts["run"]["id"]]
    got = one(spans, "get task result", messaging__message__id=task_id)
    assert (got["kind"], got["parent"]) == ("CLIENT", sent["parent"])


def check_what_it_sent(spans: list[dict[str, Any]], task_id: str) -> None:
    run = one(spans, "run traced.passes_on", messaging__message__id=task_id)
    (sent,) = [span for span in spans if span["name"] == "send traced.add" and span["parent"] == run["id"]]
    assert [span for span in spans if span["name"] == "run traced.add" and span["parent"] == sent["id"]]


def check_failure(spans: list[dict[str, Any]], task_id: str) -> None:
    run = one(spans, "run traced.fails", messaging__message__id=task_id)
    assert (run["status"], run["attributes"]["error.type"]) == ("ERROR", "UNHANDLED_EXCEPTION")
    assert (run["said"], run["events"]) == (None, 0) and SECRET not in json.dumps(spans), "its message quotes arguments"


def check_workflow(spans: list[dict[str, Any]], trace_id: str) -> None:
    """Every node, also one that was enqueued later and one of a child workflow, belongs to the start."""
    start = one(spans, "start workflow traced.outer")
    assert start["trace"] == trace_id
    below = [span for span in spans if span["parent"] == start["id"]]
    assert sorted(span["name"] for span in below if span["name"].startswith("run")) == [
        "run traced.add",
        "run traced.add",
        "run traced.plus",
    ]
    ends = [span["attributes"]["horsies.task.move"] for span in below if span["name"].startswith("finalize")]
    assert ends == ["complete"] * 3
