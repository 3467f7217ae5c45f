"""Reports async code that blocks the event loop of a child (W-30b).

While a function runs without awaiting anything, no other async task of the child makes progress, and no timeout or
cancellation can reach it. A thread asks the loop for an answer every second. If none comes for five seconds, it looks
where the main thread is, and says it in the log. The thread is started with the first async task; a child that runs
only sync tasks does not have it.
"""

import asyncio
import contextlib
import linecache
import logging
import sys
import sysconfig
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from horsies.core.tasks.context import Run
from horsies.core.text import visible

log = logging.getLogger("horsies.child")

BLOCKED_S = 5.0
LOOK_S = 1.0
QUIET_S = 60.0  # a place is reported again only after this time
_LIBRARIES = (
    "<",
    f"{Path(__file__).parents[2]}/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


class LoopWatch:
    """Watches one loop, from a thread of its own, while the main thread is inside it. `who` says which task of ours an
    asyncio task runs; None if it runs something that a task left behind."""

    def __init__(self, loop: AbstractEventLoop, who: Callable[[object], Run | None]) -> None:
        self._loop = loop
        self._who = who
        self._main = threading.get_ident()
        self._is_inside = False
        self._asked_at: float | None = None  # the question that the loop has not answered yet
        self._stopped_s = 0.0
        self._is_told = False
        self._told_at: dict[tuple[str, int], float] = {}

    def start(self) -> None:
        with contextlib.suppress(RuntimeError):  # the process may have no more threads; tasks run without a watch too
            threading.Thread(target=self._run, name="horsies-loop-watch", daemon=True).start()

    def enter(self) -> None:
        """The main thread begins to run the loop."""
        self._answer()
        self._is_inside = True

    def leave(self) -> None:
        self._is_inside = False

    def _run(self) -> None:
        while True:
            before = monotonic()
            sleep(LOOK_S)
            try:
                now = monotonic()
                self._look(now, stopped_s=max(0.0, now - before - 2 * LOOK_S))
            except RuntimeError:  # the loop is closed
                return
            except Exception:
                log.exception("the event loop cannot be watched")
                return

    def _look(self, now: float, *, stopped_s: float) -> None:
        """Ask, or judge the silence since the last question. Time in which the whole process was stopped, so that this
        thread was late too, does not count."""
        if not self._is_inside:
            return
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = now
            self._loop.call_soon_threadsafe(self._answer)
            return
        self._stopped_s += stopped_s
        blocked_s = now - asked_at - self._stopped_s
        if blocked_s > BLOCKED_S and not self._is_told:
            self._is_told = True
            self._tell(now, blocked_s)

    def _answer(self) -> None:
        self._asked_at, self._stopped_s, self._is_told = None, 0.0, False

    def _tell(self, now: float, blocked_s: float) -> None:
        run = self._who(asyncio.current_task(self._loop))
        own = None if run is None else run.task.fn.__code__.co_filename
        file, line = place_of(sys._current_frames().get(self._main), own)
        if now - self._told_at.get((file, line), -QUIET_S) < QUIET_S:
            return
        self._told_at[file, line] = now
        what = "something on the event loop" if run is None else f"async task {visible(run.task.task_name)}"
        code = visible(linecache.getline(file, line).strip())
        facts = {} if run is None else {"task_id": run.facts.task_id, "task": run.task.task_name}
        log.warning(
            "%s has blocked the event loop of this child for %.0f s at %s:%d%s: other async tasks wait, and it cannot "
            "be cancelled; await instead, use asyncio.to_thread(...), or make it a plain def task",
            what,
            blocked_s,
            visible(file),
            line,
            f" ({code})" if code else "",
            extra={"horsies": facts},
        )


def place_of(frame: FrameType | None, own: str | None = None) -> tuple[str, int]:
    """The innermost line that is in the file of the task (`own`) or in no library; the innermost line at all if there
    is no such line."""
    first = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if name == own or not name.startswith(_LIBRARIES):
            return name, frame.f_lineno
        frame = frame.f_back
    return ("unknown", 0) if first is None else (first.f_code.co_filename, first.f_lineno)
