"""Spans and trace context, by the conventions of OpenTelemetry for messaging, for programs that use it.

    send      around the INSERT, in the producer; the others are its children    get   around waiting for a result
    wait      from when the task was due to its start, made by the supervisor    run   around the function, in the child
    finalize  from the end of its code until its result is written, made by the supervisor

OpenTelemetry is an extra. A span can only be active in a program that has imported it, so it is never imported from
here unless it is loaded already; otherwise tracing costs one lookup in a dict. A send makes a span and stores a context
(`models/sending.py` says where) only if a span is active; a run makes a span wherever a tracer provider is set up. No
span contains arguments, results or error messages, only names, ids and codes.

    with tracing.sending(payload, task_id) as span:     span.trace: the context to store with the task, or None
        …                                               span.failed(code) if it failed

A failure in here never reaches the caller: a task runs whatever happens to its span.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from horsies.core.models.sending import TaskSendPayload
    from horsies.core.worker.finalize import Ending
    from horsies.core.worker.in_hand import HeldTask

log = logging.getLogger("horsies.tracing")
_MODULE: Final = "opentelemetry.trace"


def is_on() -> bool:
    """Whether this program has imported OpenTelemetry. (An entry that is None prevents its import.)"""
    return sys.modules.get(_MODULE) is not None


class Span:
    """What a block and the span around it tell each other. Without a span, nobody reads it."""

    __slots__ = ("code", "trace")

    def __init__(self) -> None:
        self.trace: str | None = None  # the context to store
        self.code: str | None = None  # why it failed

    def failed(self, code: str | None) -> None:
        """Only the code is recorded, because a message may quote arguments."""
        self.code = code or "_OTHER"


Spanning: TypeAlias = AbstractContextManager[Span]
_NOTHING: Final = nullcontext(Span())


def sending(payload: TaskSendPayload, task_id: str | None, count: int | None = None) -> Spanning:
    """Around the sending of one task; or of so many, of which this is one, without an id."""
    if not is_on():
        return _NOTHING
    facts: dict[str, Any] = {"messaging.destination.name": payload.queue_name, "horsies.task.name": payload.task_name}
    if task_id is not None:
        facts["messaging.message.id"] = task_id
    if count is not None:
        facts["messaging.batch.message_count"] = count
    return _span("PRODUCER", f"send {payload.task_name}", "send", "send", facts)


def starting(name: str, workflow_id: str) -> Spanning:
    """Around the start of a workflow."""
    if not is_on():
        return _NOTHING
    facts = {"horsies.workflow.name": name, "horsies.workflow.id": workflow_id}
    return _span("PRODUCER", f"start workflow {name}", "start", "send", facts)


def getting(kind: str, name: str) -> Spanning:
    """Around waiting for the result of a `task` or a `workflow`."""
    if not is_on():
        return _NOTHING
    key = "messaging.message.id" if kind == "task" else "horsies.workflow.id"
    return _span("CLIENT", f"get {kind} result", "get", "receive", {key: name})


def running(task_name: str, about: bytes) -> Spanning:
    """Around the function of a task, in its child; `about` is what the supervisor says about it."""
    if not is_on():
        return _NOTHING
    return _span("CONSUMER", f"run {task_name}", "run", "process", {"horsies.task.name": task_name}, about)


@contextmanager
def _span(
    kind: str, name: str, operation: str, category: str, facts: dict[str, Any], about: bytes | None = None
) -> Iterator[Span]:
    inside, otel, span, token = Span(), None, None, None
    try:
        if (otel := _otel()) is not None:
            contexts, propagate, trace = otel
            context = contexts.get_current()
            is_traced = trace.get_current_span().get_span_context().is_valid
            if about is not None:
                task_id, queue, attempt, carrier = json.loads(about)
                facts |= {
                    "messaging.message.id": task_id,
                    "messaging.destination.name": queue,
                    "horsies.task.attempt": attempt,
                }
                context = propagate.extract(carrier) if isinstance(carrier, dict) else context
                # Without a provider no span is made here, but what the task itself sends belongs to the trace.
                is_traced = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
            if is_traced:
                span = _start(trace, kind, name, operation, category, facts, context)
                context = trace.set_span_in_context(span, context)
            if is_traced and kind == "PRODUCER":
                inside.trace = _carried(propagate, context)
            token = contexts.attach(context)
    except Exception:
        log.warning("a span could not be made", exc_info=True)
    try:
        yield inside
    except BaseException as problem:
        inside.code = type(problem).__name__
        raise
    finally:
        try:
            if otel is not None and token is not None:
                otel[0].detach(token)
            if otel is not None and span is not None:
                if inside.code is not None:
                    span.set_attribute("error.type", inside.code)
                    span.set_status(otel[2].Status(otel[2].StatusCode.ERROR))
                span.end()
        except Exception:
            log.warning("a span could not be ended", exc_info=True)


def _start(
    trace: Any, kind: str, name: str, operation: str, category: str, facts: Mapping[str, Any], context: Any,
    began: int | None = None,
) -> Any:  # fmt: skip
    facts = {
        "messaging.system": "horsies",
        "messaging.operation.name": operation,
        "messaging.operation.type": category,
        **facts,
    }
    return trace.get_tracer("horsies").start_span(name, context, trace.SpanKind[kind], facts, start_time=began)


def _carried(propagate: Any, context: Any) -> str | None:
    """The context as it is stored with a task."""
    from horsies.core.models.sending import carrier_to_json  # the command line traces nothing, and starts without it

    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return carrier_to_json(carrier)


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
                self._tell("finalize", "settle", held, now - int((clock - since) * 1e9), now, outcome)

    def _tell(
        self, operation: str, category: str, held: HeldTask, began: int, ended: int, outcome: str | None = None
    ) -> None:
        if (otel := _otel()) is None:
            return
        _, propagate, trace = otel
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
        _start(trace, "INTERNAL", name, operation, category, facts, context, began).end(ended)


def supervisor(worker_id: str) -> Supervisor | None:
    """A listener that makes the spans of waiting and finalizing from the events of a worker; None without tracing."""
    return Supervisor(worker_id) if is_on() and _otel() is not None else None


def flush(seconds: float) -> None:
    """Export waiting spans; for a process that is about to end quickly. Only the SDK's provider has something to
    flush."""
    if is_on() and (otel := _otel()) is not None:
        try:
            force = getattr(otel[2].get_tracer_provider(), "force_flush", None)
            if force is not None:
                force(int(seconds * 1000))
        except Exception:
            log.warning("spans could not be exported", exc_info=True)


@lru_cache(maxsize=1)
def _otel() -> tuple[Any, Any, Any] | None:
    """Its modules `context`, `propagate` and `trace`; None if they cannot be imported (an incomplete installation, a
    missing propagator). That is logged once, and not tried again with each send."""
    try:
        from opentelemetry import context, propagate, trace
    except Exception:
        log.warning("OpenTelemetry does not import, so there are no spans", exc_info=True)
        return None
    return context, propagate, trace
