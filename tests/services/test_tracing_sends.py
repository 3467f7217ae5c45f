"""What a send inside a span stores with the task, and all that it leaves alone: fingerprints, idempotency, the send."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.baggage import set_baggage
from opentelemetry.context import attach, detach
from opentelemetry.trace import StatusCode

from horsies.core.app import Horsies
from horsies.core.models.tasks import RetryPolicy, TaskError, TaskResult
from horsies.core.producer import envelope
from horsies.core.tasks.definition import NO_OPTIONS
from tests.tracing_support import Spans, facts_of, spans_here
from tests.worker_support import Rows

TRACER = trace.get_tracer("test")
SECRET = "a-secret-argument"


@pytest.fixture
def spans() -> Spans:
    return spans_here()


@pytest.fixture
async def rows(database_url: str) -> AsyncIterator[Rows]:
    yield Rows(database_url)


def define(app: Horsies) -> Any:
    @app.task("greet", retry_policy=RetryPolicy.fixed([1], auto_retry_for=["FLAKY"]))
    def greet(name: str = "you") -> TaskResult[str, TaskError]:
        return TaskResult(ok=name)

    return greet


async def stored(rows: Rows, task_id: str) -> Any:
    return json.loads((await rows.task(task_id))["task_options"]).get("trace")


async def test_the_context_of_the_send_span_is_stored_and_the_options_are_still_there(
    app: Horsies, rows: Rows, spans: Spans
) -> None:
    greet = define(app)
    with TRACER.start_as_current_span("request") as request:
        handle = greet.send(SECRET).unwrap()
        other = (await greet.send_async(SECRET)).unwrap()
    (first, second) = [span for span in spans.all() if span.name == "send greet"]
    for span, task_id in ((first, handle.task_id), (second, other.task_id)):
        context = span.get_span_context()
        assert context is not None and span.parent == request.get_span_context()
        found = await stored(rows, task_id)
        assert found.keys() == {"traceparent"}
        assert found["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
        assert facts_of(span) == {
            "messaging.system": "horsies",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "default",
            "messaging.message.id": task_id,
            "horsies.task.name": "greet",
        }
    row = await rows.task(handle.task_id)
    assert json.loads(row["task_options"])["retry_policy"]["intervals"] == [1] and row["max_retries"] == 1


async def test_without_an_active_span_nothing_is_made_and_nothing_stored(
    app: Horsies, rows: Rows, spans: Spans
) -> None:
    handle = define(app).send().unwrap()
    assert spans.all() == () and await stored(rows, handle.task_id) is None


async def test_the_fingerprint_and_idempotency_know_nothing_of_the_trace(
    app: Horsies, rows: Rows, spans: Spans
) -> None:
    greet = define(app)
    payload = envelope.build(greet, ("you",), {}, NO_OPTIONS, datetime.now(UTC)).unwrap()
    with TRACER.start_as_current_span("one"):
        sent = (await app.sender.send(payload, greet)).unwrap()
        keyed = greet.with_options(idempotency_key="k").send("you").unwrap()
    assert (await rows.task(sent.task_id))["enqueue_sha"] == payload.enqueue_sha
    with TRACER.start_as_current_span("another"):
        again = (await app.sender.send(payload, greet, task_id=sent.task_id)).unwrap()
        assert again.task_id == sent.task_id
        assert greet.with_options(idempotency_key="k").send("you").unwrap().task_id == keyed.task_id
    assert greet.with_options(idempotency_key="k").send("you").unwrap().task_id == keyed.task_id, "nor outside of one"


async def test_send_many_is_one_span_and_so_is_a_send_in_the_callers_transaction(
    app: Horsies, rows: Rows, spans: Spans, database_url: str
) -> None:
    greet = define(app)
    with TRACER.start_as_current_span("request"), psycopg.connect(database_url) as conn:
        many = greet.send_many([("a",), ("b",), ("c",)]).unwrap()
        inside = greet.with_options(connection=conn).send("d").unwrap()
        conn.commit()
    batch, single = [span for span in spans.all() if span.name == "send greet"]
    assert facts_of(batch)["messaging.batch.message_count"] == 3 and "messaging.message.id" not in facts_of(batch)
    contexts = {json.dumps(await stored(rows, handle.task_id)) for handle in many}
    assert len(contexts) == 1 and f"{batch.context.span_id:016x}" in contexts.pop()
    assert f"{single.context.span_id:016x}" in (await stored(rows, inside.task_id))["traceparent"]


async def test_a_send_that_fails_is_told_by_its_code_only(app: Horsies, spans: Spans, database_url: str) -> None:
    greet = define(app)
    with psycopg.connect(database_url) as conn:
        pass
    with TRACER.start_as_current_span("request"):
        assert greet.with_options(connection=conn).send(SECRET).is_err()
    span = spans.one("send greet")
    assert span.status.status_code is StatusCode.ERROR and span.status.description is None
    assert facts_of(span)["error.type"] == "VALIDATION_FAILED" and span.events == ()


async def test_baggage_travels_within_bounds(app: Horsies, rows: Rows, spans: Spans) -> None:
    greet = define(app)
    with TRACER.start_as_current_span("request"):
        for text, travels in (("small", True), ("x" * 4_000, False)):
            token = attach(set_baggage("tenant", text))
            try:
                found = await stored(rows, greet.send().unwrap().task_id)
            finally:
                detach(token)
            assert found.keys() == ({"traceparent", "baggage"} if travels else {"traceparent"})


async def test_a_tracer_that_fails_does_not_fail_the_send(
    app: Horsies, rows: Rows, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    greet = define(app)
    with TRACER.start_as_current_span("request"), spans.broken():
        handle = greet.send().unwrap()
    assert await stored(rows, handle.task_id) is None
    assert "a span could not be made" in caplog.text


async def test_a_rerun_and_a_replay_belong_to_their_own_trace(app: Horsies, rows: Rows, spans: Spans) -> None:
    """A payload that is sent again is the same request, whatever trace it is sent in."""
    greet = define(app)
    with TRACER.start_as_current_span("request"):
        payload = envelope.build(greet, ("you",), {}, NO_OPTIONS, datetime.now(UTC)).unwrap()
    first = (await app.sender.send(payload, greet)).unwrap()
    with TRACER.start_as_current_span("again"):
        second = (await app.sender.send(payload, greet)).unwrap()
    assert await stored(rows, first.task_id) is None and await stored(rows, second.task_id) is not None
