"""Spans of this process, kept in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Breakable(SpanProcessor):
    """As bad as a program's own can be."""

    is_broken = False

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self.is_broken:
            raise RuntimeError("a span processor that fails")


class Spans:
    """What was told since the beginning of the test."""

    def __init__(self, exporter: InMemorySpanExporter, processor: Breakable) -> None:
        self._exporter = exporter
        self._processor = processor

    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all() if span.name == name]
        return found

    @contextlib.contextmanager
    def broken(self) -> Iterator[None]:
        self._processor.is_broken = True
        try:
            yield
        finally:
            self._processor.is_broken = False


_kept: list[tuple[InMemorySpanExporter, Breakable]] = []


def spans_here() -> Spans:
    """The spans of this process; its provider is set up once, as there can be only one."""
    if not _kept:
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            provider = TracerProvider()
            trace.set_tracer_provider(provider)
        exporter, processor = InMemorySpanExporter(), Breakable()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        provider.add_span_processor(processor)
        _kept.append((exporter, processor))
    exporter, processor = _kept[0]
    exporter.clear()
    return Spans(exporter, processor)


def facts_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
