"""The spans of tasks, by the conventions of OpenTelemetry for messaging; imported only if `tracing.is_on()`.

    send      around the INSERT, in the producer; the others are its children    get   around waiting for a result
    wait      from when the task was due to its start, made by the supervisor    run   around the function, in the child
    finalize  from the end of its code until its result is written, made by the supervisor

A send makes a span and stores a context only if a span is active, so programs without tracing pay nothing. A run makes
a span wherever a tracer provider is set up. No span contains arguments, results or error messages, only names, ids and
codes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind, Status, StatusCode

from horsies.core.models.sending import carrier_to_json

if TYPE_CHECKING:
    from horsies.core.worker.finalize import Ending
    from horsies.core.worker.in_hand import HeldTask


class Active:
    """A span that is current until `end`; without a span, only its context is current."""

    def __init__(self, context: Context, span: Span | None) -> None:
        self._span = span
        self._token: Token[Context] = contexts.attach(context)
        self.trace: str | None = None

    def end(self, code: str | None) -> None:
        """`code` says why it failed. Only the code is recorded, because the message may quote arguments."""
        contexts.detach(self._token)
        if self._span is not None:
            if code is not None:
                self._span.set_attribute("error.type", code)
                self._span.set_status(Status(StatusCode.ERROR))
            self._span.end()


def send(task: str, queue: str, task_id: str | None, count: int | None = None) -> Active | None:
    facts: dict[str, Any] = {"messaging.destination.name": queue, "horsies.task.name": task}
    if task_id is not None:
        facts["messaging.message.id"] = task_id
    if count is not None:
        facts["messaging.batch.message_count"] = count
    return _produce(f"send {task}", "send", facts)


def start(name: str, workflow_id: str) -> Active | None:
    facts = {"horsies.workflow.name": name, "horsies.workflow.id": workflow_id}
    return _produce(f"start workflow {name}", "start", facts)


def get(kind: str, name: str) -> Active | None:
    if not _is_traced():
        return None
    key = "messaging.message.id" if kind == "task" else "horsies.workflow.id"
    span = _span(f"get {kind} result", SpanKind.CLIENT, _facts("get", "receive", {key: name}))
    return Active(trace.set_span_in_context(span), span)


def run(task: str, about: bytes) -> Active:
    task_id, queue, attempt, carrier = json.loads(about)
    context = propagate.extract(carrier) if isinstance(carrier, dict) else contexts.get_current()
    if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        return Active(context, None)  # no spans are collected here, but the task's own sends belong to the trace
    facts = {
        "messaging.message.id": task_id,
        "messaging.destination.name": queue,
        "horsies.task.name": task,
        "horsies.task.attempt": attempt,
    }
    span = _span(f"run {task}", SpanKind.CONSUMER, _facts("run", "process", facts), context)
    return Active(trace.set_span_in_context(span, context), span)


class Supervisor:
    """Makes the spans of a worker, for tasks with a context; it listens to `events`."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "tasks.started":
            self._started(facts["batch"])
        elif event == "tasks.finalized":
            self._finalized(facts["endings"], facts["moved"])

    def _started(self, batch: Sequence[HeldTask]) -> None:
        now = time.time_ns()
        for held in batch:
            if held.options.trace is not None:
                due = int(held.row.enqueued_at.timestamp() * 1e9)  # the database's clock may be ahead of ours
                self._tell("wait", "receive", held, min(due, now), now)

    def _finalized(self, endings: Sequence[Ending], moved: Mapping[str, type]) -> None:
        now, clock = time.time_ns(), time.monotonic()
        for ending in endings:
            held = ending.held
            if held.options.trace is not None and not ending.goes_back:
                kind = moved.get(held.id)
                since = clock if held.settling_since is None else held.settling_since
                outcome = "lost" if kind is None else kind.__name__.lower()
                begun = now - int((clock - since) * 1e9)
                self._tell("finalize", "settle", held, begun, now, outcome)

    def _tell(
        self, operation: str, kind: str, held: HeldTask, begun: int, ended: int, outcome: str | None = None
    ) -> None:
        row = held.row
        facts: dict[str, Any] = {
            "messaging.message.id": row.id,
            "messaging.destination.name": row.queue_name,
            "horsies.task.name": row.task_name,
            "horsies.task.attempt": row.retry_count + 1,
            "horsies.worker.id": self._worker_id,
        }
        if outcome is not None:
            facts["horsies.task.move"] = outcome
        context = propagate.extract(json.loads(held.options.trace or "{}"))
        name = f"{operation} {row.task_name}"
        _span(name, SpanKind.INTERNAL, _facts(operation, kind, facts), context, begun).end(ended)


def flush(seconds: float) -> None:
    """Only the SDK's provider has something to flush."""
    force = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force is not None:
        force(int(seconds * 1000))


def _produce(name: str, operation: str, facts: Mapping[str, Any]) -> Active | None:
    if not _is_traced():
        return None
    span = _span(name, SpanKind.PRODUCER, _facts(operation, "send", facts))
    context = trace.set_span_in_context(span)
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    active = Active(context, span)
    active.trace = carrier_to_json(carrier)
    return active


def _is_traced() -> bool:
    return trace.get_current_span().get_span_context().is_valid


def _span(
    name: str, kind: SpanKind, facts: Mapping[str, Any], context: Context | None = None, begun: int | None = None
) -> Span:
    return trace.get_tracer("horsies").start_span(name, context, kind, facts, start_time=begun)


def _facts(operation: str, kind: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "messaging.system": "horsies",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        **more,
    }
