"""Events inside a process, for metrics, spans and tests: `emit` reports an event, `subscribe` adds a listener.

There is one event for a batch, never one for a task. A hot path checks `if events.listeners:` before it collects facts:
without listeners an event costs that one test, and nothing is allocated. Listeners are called at once, in the code that
emits, so they must do no I/O; a listener that fails is logged and does not affect the others.

    tasks.claimed     rows, seconds           a claim pass has ended (rows may be empty)
    tasks.started     batch, seconds          these are RUNNING now
    tasks.finalized   endings, moved, seconds these outcomes were written; those not in `moved` were too late
    tasks.recovered   kinds                   recovery moved tasks of other workers; counts by kind of move
    tasks.expired     count                   waiting tasks past their deadline
    workers.swept     workers, tasks          a sweep found dead workers
    child.ended       expected                a child process is gone
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

log = logging.getLogger("horsies.events")
Listener: TypeAlias = Callable[[str, Mapping[str, Any]], None]

# Only `subscribe` changes this list. It is always the same list, so that callers can test `if events.listeners`.
listeners: list[Listener] = []


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call `listener(name, facts)` for every event of this process from now on, until the returned function is
    called."""
    listeners.append(listener)

    def unsubscribe() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return unsubscribe


def emit(name: str, **facts: Any) -> None:
    """Pass the event to all listeners."""
    for listener in tuple(listeners):
        try:
            listener(name, facts)
        except Exception:
            log.exception("a listener for %s failed", name)
