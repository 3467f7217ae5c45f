"""Runs the async tasks of a child on an event loop in its main thread, up to `concurrency` at once (W-30a).

The loop is entered for the first async task and left when a sync task is next and nothing is running: sync tasks need
the whole child and may call `asyncio.run` themselves. The loop is kept: what tasks left on it (connection pools,
background tasks) continues when it is entered again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns

from horsies.core import execution
from horsies.core.execution import AnyTask, Report
from horsies.core.worker import wire
from horsies.core.worker.inbox import PLAIN_PARTS, Inbox, Item
from horsies.core.worker.reporter import Reporter, unexpected, unknown
from horsies.core.worker.uplink import Uplink, leave
from horsies.core.worker.wire import Kind

log = logging.getLogger("horsies.child")


class AsyncRunner:
    """Everything here runs in the main thread, except `tokens` and `stop`."""

    def __init__(
        self,
        tasks: Mapping[str, AnyTask],
        inbox: Inbox,
        uplink: Uplink,
        reporter: Reporter,
        concurrency: int,
        note: Callable[[bytes], None] = lambda entry: None,
        hold: Callable[[bytes], bytes] = lambda unsent: unsent,
    ) -> None:
        self._tasks = tasks
        self._inbox = inbox
        self._uplink = uplink
        self._reporter = reporter
        self._concurrency = concurrency
        self._note = note
        self._hold = hold
        self._loop: AbstractEventLoop | None = None
        self._is_inside = False
        self._is_pump_due = False
        self._running: dict[int, Future[Report]] = {}
        self._cancelled: set[int] = set()
        self._unsent: list[bytes] = []
        uplink.on_copied = self._end_copy

    def serve(self, first: Item, unsent: bytes) -> None:
        """Run this task and the following async tasks, until a sync task is next or there will be no more."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._is_inside = True
        self._unsent.append(unsent)
        self._inbox.notify(self._wake)
        self._begin([first])  # before the loop turns: a wake-up from last time may still be in it, and find nothing
        self._loop.call_soon(self._pump)
        while self._is_inside:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Not from a task, whose exceptions are results, but from something a task left on the loop (T-88).
                log.error("%s in a background task or callback was ignored", type(error).__name__)
        self._inbox.notify(None)

    def close(self) -> None:
        """Cancel what is left on the loop, and let it clean up."""
        if self._loop is None:
            return
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(BaseException):
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    # The io thread

    def tokens(self) -> list[int]:
        return list(self._running)

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._pump)

    def stop(self, token: int) -> None:
        loop = self._loop
        if loop is not None:  # else the task is not even begun: `_begin` looks
            loop.call_soon_threadsafe(self._cancel, token)

    # The loop

    def _pump_soon(self) -> None:
        if not self._is_pump_due and self._loop is not None:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Report ended tasks, start those for which there is room, and leave when the child must continue without the
        loop."""
        self._is_pump_due = False
        fresh: list[Item] = []
        while (upcoming := self._inbox.peek()) is not None:
            if self._needs_whole_child(upcoming) or len(self._running) + len(fresh) >= self._concurrency:
                break
            if self._inbox.take(upcoming):
                fresh.append(upcoming)
        self._begin(fresh)
        is_over = self._inbox.is_closed if upcoming is None else self._needs_whole_child(upcoming)
        if is_over and not self._running and self._loop is not None:
            self._is_inside = False
            self._loop.stop()

    def _needs_whole_child(self, item: Item) -> bool:
        task = self._tasks.get(item.task_name)
        return task is not None and not task.is_async

    def _begin(self, items: list[Item]) -> None:
        """Report that these tasks start, together with other pending reports; then start them."""
        if items:
            self._unsent = [self._hold(b"".join(self._unsent))]
        for item in items:
            self._unsent.append(wire.pack(Kind.STARTED, item.token))
            if item.task_name not in self._tasks:
                began = perf_counter_ns()
                self._unsent.append(self._reporter.done(item.token, unknown(item), stopped=False, began=began))
        said = b"".join(self._unsent)
        self._unsent.clear()
        if said:
            self._uplink.send(said)
        for item in items:
            task = self._tasks.get(item.task_name)
            if task is not None:
                self._start(item, task)

    def _start(self, item: Item, task: AnyTask) -> None:
        assert self._loop is not None
        began = perf_counter_ns()
        self._note(item.entry)
        if len(item.parts) == PLAIN_PARTS:
            code = execution.run_async(task, item.args, item.kwargs)
        else:
            code = execution.run_traced_async(task, item.args, item.kwargs, item.about)
        running = self._loop.create_task(code)
        self._running[item.token] = running
        running.add_done_callback(partial(self._ended, item.token, task, began))
        if item.token in self._reporter.wanted_stopped:  # said before the task was there to be cancelled
            self._cancel(item.token)

    def _cancel(self, token: int) -> None:
        running = self._running.get(token)
        if running is not None and token not in self._cancelled and running.cancel():
            self._cancelled.add(token)

    def _ended(self, token: int, task: AnyTask, began: int, running: Future[Report]) -> None:
        del self._running[token]
        stopped = token in self._cancelled
        self._cancelled.discard(token)
        report: Report | None = None
        try:
            report = running.result()
        except asyncio.CancelledError as error:
            if not stopped:  # the code cancelled itself
                report = unexpected(task, error)
        except BaseException as error:
            report = unexpected(task, error)
        self._unsent.append(self._reporter.done(token, report, stopped=stopped, began=began))
        self._pump_soon()

    def _end_copy(self) -> None:
        """Used in a copy that a task made by `fork`: the code that forked may finish its step, but other tasks must not
        continue in the copy, and its loop shares the selector with the original."""
        if self._is_inside and self._loop is not None:
            ready = getattr(self._loop, "_ready", None)
            if ready is not None:
                ready.clear()
            self._loop.call_soon(leave, 0)
