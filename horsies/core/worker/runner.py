"""Runs the tasks of a child in its main thread: sync tasks here, one at a time, async tasks in `async_runner.py`.

Each task is reported as started before its arguments are read, and as done as soon as it has a result. The two reports
between one task and the next share a write, so a child that is fed in batches makes one system call per task. A stop
from the supervisor is a signal to this thread, which raises `StopTask` in the function it names, and nowhere else.
"""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Callable, Mapping
from time import perf_counter_ns, sleep

from horsies.core import execution
from horsies.core.execution import AnyTask, Report, StopTask
from horsies.core.worker import wire
from horsies.core.worker.async_runner import AsyncRunner
from horsies.core.worker.inbox import PLAIN_PARTS, Inbox, Item
from horsies.core.worker.reporter import Reporter, unexpected, unknown
from horsies.core.worker.uplink import Uplink
from horsies.core.worker.wire import Kind

STOP_SIGNAL = signal.SIGUSR1
LOOK_S = 0.001


class Runner:
    """The work of the main thread. The io thread calls `tokens` and `stop`."""

    def __init__(
        self,
        tasks: Mapping[str, AnyTask],
        inbox: Inbox,
        uplink: Uplink,
        concurrency: int,
        note: Callable[[bytes], None] = lambda entry: None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._tasks = tasks
        self._inbox = inbox
        self._uplink = uplink
        self._note = note  # in the start journal
        self._is_late = is_late
        self._reporter = Reporter(inbox)
        self._wanted = self._reporter.wanted_stopped
        self._async = AsyncRunner(tasks, inbox, uplink, self._reporter, concurrency, note, self._hold)
        self._current: int | None = None  # the sync task between STARTED and DONE
        self._inside: int | None = None  # the sync task whose code may be interrupted right now
        self._was_stopped = False
        self._main = threading.get_ident()
        signal.signal(STOP_SIGNAL, self._interrupt)

    def serve(self) -> None:
        """Run tasks until the supervisor has said goodbye and everything is done."""
        unsent = b""
        while True:
            item = self._inbox.poll()
            if item is None:
                if unsent:
                    self._uplink.send(unsent)
                    unsent = b""
                item = self._inbox.wait()
                if item is None:
                    return
            task = self._tasks.get(item.task_name)
            if task is not None and task.is_async:
                self._async.serve(item, unsent)
                unsent = b""
            else:
                self._uplink.send(self._hold(unsent) + wire.pack(Kind.STARTED, item.token))
                unsent = b""  # it may be large, and the next task long
                unsent = self._run(item, task)

    def _hold(self, unsent: bytes) -> bytes:
        """Called before a task begins. After a pause others may have the task, so the io thread first decides whether
        this process continues (R-101); known reports are sent before that. Return what is left to report."""
        if not self._is_late():
            return unsent
        self._uplink.send(unsent)
        while self._is_late():
            sleep(LOOK_S)
        return b""

    def close(self) -> None:
        """Cancel what async tasks have left behind on the event loop."""
        self._async.close()

    def _run(self, item: Item, task: AnyTask | None) -> bytes:
        began = perf_counter_ns()
        report: Report | None = None
        self._was_stopped = False
        self._current = item.token
        self._note(item.entry)
        try:
            # A context of its own: what a task sets in context variables is not seen by the next one.
            report = contextvars.copy_context().run(self._call, item, task)
        except StopTask:
            pass
        except BaseException as error:
            report = unexpected(task, error) if task is not None else unknown(item)
        self._current = None
        return self._reporter.done(item.token, report, stopped=self._was_stopped, began=began)

    def _call(self, item: Item, task: AnyTask | None) -> Report:
        try:
            self._inside = item.token
            if item.token in self._wanted:  # said after the task was polled, when there was nothing to interrupt yet
                self._raise_stop()
            if task is None:
                return unknown(item)
            if len(item.parts) == PLAIN_PARTS:
                return execution.run(task, item.args, item.kwargs)
            return execution.run_traced(task, item.args, item.kwargs, item.about)
        finally:
            self._inside = None

    def tokens(self) -> list[int]:
        """What is running now."""
        current = self._current
        return [current] if current is not None else self._async.tokens()

    def stop(self, token: int) -> None:
        """Raise StopTask in this task's code, or cancel it. The code may catch that; the supervisor then uses stronger
        means."""
        if token not in self._inbox.held:
            return
        self._wanted.add(token)  # before the question below: the main thread does the two the other way round
        if token == self._current:
            signal.pthread_kill(self._main, STOP_SIGNAL)
        else:
            self._async.stop(token)

    def _interrupt(self, _signal: int, _frame: object) -> None:
        if self._inside is not None and self._inside in self._wanted:
            self._raise_stop()

    def _raise_stop(self) -> None:
        self._inside = None  # once only: code that cleans up is not interrupted again
        self._was_stopped = True
        raise StopTask
