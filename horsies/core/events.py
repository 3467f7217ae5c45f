"""Facts about what happens, for whoever listens to them: metrics, spans, tests. `emit` tells, `subscribe` listens.

One event for a batch, never one for a task. A hot path asks `if events.listeners:` before it puts any facts together:
with nobody listening an event is that one truth test, and nothing is allocated. Listeners are called at once, where the
fact is told, so they do no I/O; one that fails is logged and costs nobody else anything.

    tasks.claimed     rows, seconds           a claim pass has come back (rows may be empty)
    tasks.started     batch, seconds          these are RUNNING now
    tasks.finalized   endings, moved, seconds these ends were written; those not in `moved` came too late
    tasks.recovered   kinds                   recovery moved tasks of others; how many by kind of move
    tasks.expired     count                   waiting tasks past their deadline
    workers.swept     workers, tasks          a sweep found dead workers
    child.ended       expected                a child process is gone
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

log = logging.getLogger("horsies.events")

Listener: TypeAlias = Callable[[str, Mapping[str, Any]], None]

# Changed by `subscribe` only. Always the same list, so that `events.listeners` is the question whether anybody listens.
listeners: list[Listener] = []


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call `listener(name, facts)` for every event of this process from now on, until what is returned is called."""
    listeners.append(listener)

    def unsubscribe() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return unsubscribe


def emit(name: str, **facts: Any) -> None:
    """Tell whoever listens."""
    for listener in tuple(listeners):
        try:
            listener(name, facts)
        except Exception:
            log.exception("a listener for %s failed", name)
