"""An app that is traced: every process that loads it appends its spans to the file `SPANS`, a line of JSON each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from horsies import (
    AppConfig,
    Horsies,
    PostgresConfig,
    SubWorkflowNode,
    TaskError,
    TaskResult,
    WorkflowDefinition,
    WorkflowSpec,
    from_node,
)
from horsies.core.models.recovery import WorkerResilienceConfig


class FileExporter(SpanExporter):
    """One `write` for each line, so that processes may share the file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with open(os.environ.get("SPANS", os.devnull), "a") as file:
            for span in spans:
                context, parent = span.get_span_context(), span.parent
                entry = {
                    "name": span.name,
                    "kind": span.kind.name,
                    "trace": f"{context.trace_id:032x}" if context else None,
                    "id": f"{context.span_id:016x}" if context else None,
                    "parent": f"{parent.span_id:016x}" if parent else None,
                    "attributes": dict(span.attributes or {}),
                    "status": span.status.status_code.name,
                    "said": span.status.description,
                    "events": len(span.events),
                    "pid": os.getpid(),
                    "seconds": ((span.end_time or 0) - (span.start_time or 0)) / 1e9,
                }
                file.write(json.dumps(entry) + "\n")
        return SpanExportResult.SUCCESS


def set_up() -> None:
    """As a program does it once. In batches, so that what a process has not said when it ends would be lost."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(BatchSpanProcessor(FileExporter()))


set_up()

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        resilience=WorkerResilienceConfig(notify_poll_interval_ms=1_000),
        prefetch_buffer=int(os.environ.get("PREFETCH", "0")),
        claim_lease_ms=60_000,
    )
)

Number = TaskResult[int, TaskError]


@app.task("traced.add")
def add(a: int, b: int = 0) -> Number:
    with trace.get_tracer("user").start_as_current_span("inside"):
        return TaskResult(ok=a + b)


@app.task("traced.plus")
async def plus(a: Number, b: int = 1) -> Number:
    with trace.get_tracer("user").start_as_current_span("inside"):
        return TaskResult(ok=a.unwrap() + b)


@app.task("traced.passes_on")
def passes_on(a: int) -> Number:
    add.send(a).unwrap()
    return TaskResult(ok=a)


@app.task("traced.blocks")
def blocks(path: str) -> Number:
    """Run until there is such a file."""
    while not Path(path).exists():
        time.sleep(0.01)
    return TaskResult(ok=0)


@app.task("traced.fails")
def fails(secret: str) -> Number:
    raise RuntimeError(f"cannot work with {secret}")


class Inner(WorkflowDefinition[int]):
    """A child workflow: one node."""

    name = "traced.inner"
    definition_key = "traced.inner.v1"

    @classmethod
    def build_with(cls, app: Horsies, *args: Any, a: int, **_: Any) -> WorkflowSpec[int]:
        node = add.node(node_id="inner")(a=a)
        return app.workflow(cls.name, [node], output=node, definition_key=cls.definition_key)


def outer() -> WorkflowSpec[Any]:
    """A first node, one that waits for it, and a child workflow behind them."""
    first = add.node(node_id="first")(a=1)
    second = plus.node(node_id="second")(a=from_node(first))
    child: SubWorkflowNode[int] = SubWorkflowNode(Inner, kwargs={"a": 5}, waits_for=[second], node_id="child")
    return app.workflow("traced.outer", [first, second, child], output=child, definition_key="traced.outer.v1")
