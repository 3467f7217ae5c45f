"""Spans and trace context, for programs that use OpenTelemetry.

OpenTelemetry is an extra and is never imported from here. A span can only be active in a program that has imported it,
so this module only checks whether it is imported. If it is not, tracing costs one lookup in a dict.

    with tracing.sending(payload, task_id) as span:     span.trace: the context to store with the task, or None
        …                                               span.failed(code) if it failed

A failure in here never reaches the caller: a task runs whatever happens to its span. `otel.py` makes the spans, and
`models/sending.py` defines where a context is stored.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from horsies.core.events import Listener
    from horsies.core.models.sending import TaskSendPayload
    from horsies.core.otel import Active

log = logging.getLogger("horsies.tracing")
_MODULE: Final = "opentelemetry.trace"


def is_on() -> bool:
    """Whether this program has imported OpenTelemetry. (An entry that is None prevents its import.)"""
    return sys.modules.get(_MODULE) is not None


class Spanning(Protocol):
    """A span around a block, or nothing."""

    @property
    def trace(self) -> str | None: ...
    def failed(self, code: str | None) -> None: ...
    def __enter__(self) -> Spanning: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Nothing:
    trace = None

    def failed(self, code: str | None) -> None:
        pass

    def __enter__(self) -> Spanning:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_NOTHING: Final = _Nothing()


class _Spanning:
    def __init__(self, begin: Callable[[Any], Active | None]) -> None:
        """`begin` gets the module `otel`."""
        self._begin = begin
        self._active: Active | None = None
        self._code: str | None = None
        self.trace: str | None = None

    def failed(self, code: str | None) -> None:
        self._code = code or "_OTHER"

    def __enter__(self) -> Spanning:
        try:
            if (otel := _otel()) is not None:
                self._active = self._begin(otel)
                self.trace = None if self._active is None else self._active.trace
        except Exception:
            log.warning("a span could not be made", exc_info=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._active is not None:
                self._active.end(kind.__name__ if kind is not None else self._code)
        except Exception:
            log.warning("a span could not be ended", exc_info=True)


def sending(payload: TaskSendPayload, task_id: str) -> Spanning:
    """Around the sending of one task."""
    if not is_on():
        return _NOTHING
    return _Spanning(lambda otel: otel.send(payload.task_name, payload.queue_name, task_id))


def sending_many(payload: TaskSendPayload, count: int) -> Spanning:
    """Around the sending of many tasks, of which this is one."""
    if not is_on():
        return _NOTHING
    return _Spanning(lambda otel: otel.send(payload.task_name, payload.queue_name, None, count))


def starting(name: str, workflow_id: str) -> Spanning:
    """Around the start of a workflow."""
    return _Spanning(lambda otel: otel.start(name, workflow_id)) if is_on() else _NOTHING


def getting(kind: str, name: str) -> Spanning:
    """Around waiting for the result of a `task` or a `workflow`."""
    return _Spanning(lambda otel: otel.get(kind, name)) if is_on() else _NOTHING


def running(task_name: str, about: bytes) -> Spanning:
    """Around the function of a task, in its child; `about` is what the supervisor says about it."""
    return _Spanning(lambda otel: otel.run(task_name, about)) if is_on() else _NOTHING


def supervisor(worker_id: str) -> Listener | None:
    """A listener that makes the spans of waiting and finalizing from the events of a worker; None without tracing."""
    otel = _otel() if is_on() else None
    listener: Listener | None = None if otel is None else otel.Supervisor(worker_id)
    return listener


def flush(seconds: float) -> None:
    """Export waiting spans; for a process that is about to end quickly."""
    if is_on() and (otel := _otel()) is not None:
        try:
            otel.flush(seconds)
        except Exception:
            log.warning("spans could not be exported", exc_info=True)


@lru_cache(maxsize=1)
def _otel() -> Any:
    """The module; None if it cannot be imported (an incomplete installation, a missing propagator). That is logged
    once, and not tried again with each send."""
    try:
        import horsies.core.otel as otel
    except Exception:
        log.warning("OpenTelemetry does not import, so there are no spans", exc_info=True)
        return None
    return otel
