"""Events inside a process, for metrics, spans and tests: `emit` reports an event, `subscribe` adds a listener.

There is one event for a batch, never one for a task. A hot path checks `if events.listeners:` before it collects facts:
without listeners an event costs that one test, and nothing is allocated. Listeners are called at once, in the code that
emits, so they must do no I/O; a listener that fails is logged and does not affect the others.

    tasks.claimed     rows, seconds           a claim pass has ended (rows may be empty)
    tasks.started     batch, seconds          these are RUNNING now
    tasks.finalized   endings, moved, seconds these outcomes were written; those not in `moved` were too late
    tasks.recovered   kinds, by, moved        recovery moved tasks of other workers; counts by kind of move
    tasks.expired     count, by, names        waiting tasks past their deadline; counts by queue and name
    tasks.unknown     by, names               waiting tasks that failed because nobody knows them (O-31); the same
    workers.swept     workers, tasks          a sweep found dead workers
    child.ready                               a child process has loaded the app
    child.ended       expected                a child process is gone

`by` is the worker that did it. Several workers may live in one process.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

log = logging.getLogger("horsies.events")
Listener: TypeAlias = Callable[[str, Mapping[str, Any]], None]

# Only `subscribe` changes these lists. They are always the same lists, so that callers can test `if events.listeners`.
listeners: list[Listener] = []
listeners_for_rare: list[Listener] = []
RARE = frozenset({"tasks.recovered", "tasks.expired", "tasks.unknown"})  # no hot path emits them


def subscribe(listener: Listener, *, rare_only: bool = False) -> Callable[[], None]:
    """Call `listener(name, facts)` for every event of this process from now on, or only for the `RARE` ones, until the
    returned function is called."""
    place = listeners_for_rare if rare_only else listeners
    place.append(listener)

    def unsubscribe() -> None:
        if listener in place:
            place.remove(listener)

    return unsubscribe


def emit(name: str, **facts: Any) -> None:
    """Pass the event to all listeners."""
    for listener in (*listeners, *(listeners_for_rare if name in RARE else ())):
        try:
            listener(name, facts)
        except Exception:
            log.exception("a listener for %s failed", name)
