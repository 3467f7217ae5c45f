"""Runs the tasks of a child in its main thread. `Runner` runs sync tasks one at a time; `AsyncRunner` runs async tasks
on an event loop, up to `concurrency` at once (W-30a); `Reporter` packs the report of an ended task.

Each task is reported as started before its arguments are read, and as done as soon as it has a result. The two reports
between one task and the next are written together. Between tasks that are very short they are only kept in the outbox,
where the supervisor finds them if this process dies, and sent every half millisecond: a system call would take longer
than such a task, and each one wakes the supervisor. A stop
from the supervisor is a signal to this thread, which raises `StopTask` in the function it names, and nowhere else. What
one run of a task means is in `tasks/execute.py`; the socket and the inbox are in `io.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import resource
import signal
import sys
import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns, sleep

from horsies.core.child import wire
from horsies.core.child.io import PLAIN_PARTS, Inbox, Item, Uplink, leave
from horsies.core.child.loop_watch import LoopWatch
from horsies.core.child.notes import Notes
from horsies.core.models.notes import Progress
from horsies.core.models.tasks import OperationalErrorCode, TaskError
from horsies.core.tasks import context, execute
from horsies.core.tasks.context import Run, StopTask
from horsies.core.tasks.execute import AnyTask, Report

log = logging.getLogger("horsies.child")

STOP_SIGNAL = signal.SIGUSR1
LOOK_S = 0.001
RSS_MAX_AGE_NS = 50_000_000
KEPT_NS = 500_000  # reports are kept for this long at most, unless a task takes longer than it did the last time
BRIEF_NS = 250_000  # only a task that took no longer than this the last time begins before the report of that is sent
_NO_REPORT = Report(ok=False, result="", error_code=None, error_message=None)


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
        notes: Notes | None = None,
    ) -> None:
        self._tasks = tasks
        self._inbox = inbox
        self._uplink = uplink
        self._note = note  # in the start journal
        self._is_late = is_late
        self._reporter = Reporter(inbox, notes)
        self._wanted = self._reporter.wanted_stopped
        self._async = AsyncRunner(tasks, inbox, uplink, self._reporter, concurrency, note, self._hold)
        self._current: int | None = None  # the sync task between STARTED and DONE
        self._inside: int | None = None  # the sync task whose code may be interrupted right now
        self._this: Run | None = None  # the run of that task
        self._was_stopped = False
        self._took_ns: dict[str, int] = {}  # the last run of each sync task
        self._sent_at = 0
        self._main = threading.get_ident()
        signal.signal(STOP_SIGNAL, self._interrupt)

    def serve(self) -> None:
        """Run tasks until the supervisor has said goodbye and everything is done."""
        unsent = b""
        while True:
            item = self._inbox.poll()
            if item is None:
                self._uplink.flush(unsent)
                unsent = b""
                item = self._inbox.wait()
                if item is None:
                    return
            task = self._tasks.get(item.task_name)
            if task is not None and task.is_async:
                self._uplink.flush(unsent)
                unsent = b""
                self._async.serve(item)
            else:
                self._say_started(item.token, self._took_ns.get(task.task_name) if task else None, unsent)
                unsent = b""  # free it now: it may be large, and the next task may be long
                unsent = self._run(item, task)

    def _say_started(self, token: int, took_ns: int | None, unsent: bytes) -> None:
        unsent, started = self._hold(unsent), wire.pack(wire.Kind.STARTED, token)
        now = perf_counter_ns()
        is_brief = took_ns is not None and took_ns < BRIEF_NS
        if not (is_brief and now - self._sent_at < KEPT_NS and self._uplink.keep(unsent, started)):
            self._uplink.flush(unsent, started)
            self._sent_at = now

    def _hold(self, unsent: bytes) -> bytes:
        """Called before a task begins. After a pause others may have the task, so the io thread first decides whether
        this process continues (R-101); known reports are sent before that. Return what is left to report."""
        if not self._is_late():
            return unsent
        self._uplink.flush(unsent)
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
            # The task gets its own context, so the next one does not see what it sets in context variables.
            report = contextvars.copy_context().run(self._call, item, task)
        except StopTask:
            report = None if self._this is None else execute.kept(self._this)
        except BaseException as error:
            report = unexpected(task, error) if task is not None else unknown(item)
        self._current = None
        if self._this is not None:
            self._this.outcome = None  # the frames of its error refer to the run
            self._this = None
        if task is not None:
            self._took_ns[task.task_name] = perf_counter_ns() - began
        return self._reporter.done(item.token, report, stopped=self._was_stopped, began=began)

    def _call(self, item: Item, task: AnyTask | None) -> Report:
        try:
            self._inside = item.token
            if item.token in self._wanted:  # the stop came after the poll, when there was nothing to interrupt
                self._raise_stop()
            if task is None:
                return unknown(item)
            self._this = this = Run(task, item.facts, self._reporter, item.token)
            context.begin(this)
            if len(item.parts) == PLAIN_PARTS:
                return execute.run(task, item.args, item.kwargs, this)
            return execute.now(execute.run_traced(task, item.args, item.kwargs, item.about, this))
        finally:
            self._inside = None

    def tokens(self) -> list[int]:
        """What is running now."""
        current = self._current
        return [current] if current is not None else self._async.tokens()

    def is_being_stopped(self) -> bool:
        """Whether the supervisor wants a task of this child to end that has not ended yet."""
        return not self._wanted.isdisjoint(self._inbox.held)  # one step: the io thread changes both

    def stop(self, token: int) -> None:
        """Raise StopTask in this task's code, or cancel it. The code may catch that; the supervisor then uses stronger
        means."""
        if token not in self._inbox.held:
            return
        self._wanted.add(token)  # before the check below, because the main thread does the two in the other order
        if token == self._current:
            signal.pthread_kill(self._main, STOP_SIGNAL)
        else:
            self._async.stop(token)

    def _interrupt(self, _signal: int, _frame: object) -> None:
        if self._inside is not None and self._inside in self._wanted:
            self._raise_stop()

    def _raise_stop(self) -> None:
        self._inside = None  # once only: code that cleans up is not interrupted again
        self._was_stopped = self._this is None or self._this.outcome is None  # otherwise only hooks are stopped
        raise StopTask


class AsyncRunner:
    """Everything here runs in the main thread, except `tokens` and `stop`.

    The loop is entered for the first async task and left when a sync task is next and nothing is running: sync tasks
    need the whole child and may call `asyncio.run` themselves. The loop is kept: what tasks left on it (connection
    pools, background tasks) continues when it is entered again."""

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
        self._runs: dict[int, Run] = {}
        self._watch: LoopWatch | None = None
        self._cancelled: dict[int, bool] = {}  # whether the function had not ended; otherwise only hooks are stopped
        self._unsent: list[bytes] = []
        uplink.on_copied = self._end_copy

    def serve(self, first: Item) -> None:
        """Run this task and the following async tasks, until a sync task is next or there will be no more."""
        if self._loop is None or self._watch is None:
            self._loop = asyncio.new_event_loop()
            self._watch = LoopWatch(self._loop, self._run_of)
            self._watch.start()
        self._is_inside = True
        self._inbox.notify(self._wake)
        self._begin([first])  # before the loop runs: it may still hold an old wake-up, which must find this task
        self._loop.call_soon(self._pump)
        self._watch.enter()
        while self._is_inside:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # The exceptions of tasks are results, so this comes from something that a task left on the loop (T-88).
                log.error("%s in a background task or callback was ignored", type(error).__name__)
        self._watch.leave()
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

    # Other threads

    def tokens(self) -> list[int]:
        return list(self._running)

    def _run_of(self, running: object) -> Run | None:
        """The run behind a task of the loop; the thread that watches the loop asks."""
        return next((self._runs.get(token) for token, one in list(self._running.items()) if one is running), None)

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._pump)

    def stop(self, token: int) -> None:
        loop = self._loop
        if loop is not None:  # otherwise the task has not begun, and `_begin` checks
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
            self._unsent.append(wire.pack(wire.Kind.STARTED, item.token))
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
        this = Run(task, item.facts, self._reporter, item.token)
        if len(item.parts) == PLAIN_PARTS:
            code = execute.run_async(task, item.args, item.kwargs, this)
        else:
            code = execute.run_traced(task, item.args, item.kwargs, item.about, this)
        running = self._loop.create_task(code)
        self._running[item.token] = running
        self._runs[item.token] = this
        running.add_done_callback(partial(self._ended, item.token, task, began))
        if item.token in self._reporter.wanted_stopped:  # the stop came before there was a task to cancel
            self._cancel(item.token)

    def _cancel(self, token: int) -> None:
        running = self._running.get(token)
        if running is not None and token not in self._cancelled and running.cancel():
            self._cancelled[token] = self._runs[token].outcome is None

    def _ended(self, token: int, task: AnyTask, began: int, running: Future[Report]) -> None:
        del self._running[token]
        self._runs.pop(token).outcome = None  # the frames of its error refer to the run
        stopped = self._cancelled.pop(token, False)
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


class Reporter:
    """Packs DONE frames and releases their tasks, and tells the code of a task whether it should stop."""

    def __init__(self, inbox: Inbox, notes: Notes | None = None) -> None:
        self.wanted_stopped: set[int] = set()  # tokens the supervisor wants stopped
        self._inbox = inbox
        self._notes = Notes(inbox.held) if notes is None else notes
        self._memory = Memory()

    def is_stopping(self, token: int) -> bool:
        """Whether this task was told to stop, or the worker is leaving."""
        return token in self.wanted_stopped or self._inbox.is_leaving or self._inbox.is_closed

    def progress(self, token: int, progress: Progress) -> None:
        """How far a task has come (P-50)."""
        self._notes.progress(token, progress)

    def done(self, token: int, report: Report | None, *, stopped: bool, began: int) -> bytes:
        """The DONE frame of a task that began at `began`, after what it has said last. Without a report, it was stopped
        before it had one."""
        now = perf_counter_ns()
        report = report or _NO_REPORT
        rss_kb = self._memory.rss_kb(now)
        try:
            frame = _pack(token, report, stopped, now - began, rss_kb)
        except (wire.WireError, MemoryError) as error:
            frame = _pack(token, too_large(error), stopped, now - began, rss_kb)
        self._inbox.held.discard(token)
        self.wanted_stopped.discard(token)
        return self._notes.last(token) + frame if self._notes.noted else frame


class Memory:
    """This process's resident memory, read rarely, because reading it costs as much as a small task."""

    def __init__(self) -> None:
        self._page_kb = resource.getpagesize() // 1024
        self._looked = 0
        self._kb = 0

    def rss_kb(self, now: int) -> int:
        if now - self._looked > RSS_MAX_AGE_NS or not self._kb:
            self._kb, self._looked = self._look(), now
        return self._kb

    def _look(self) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return int(os.read(fd, 128).split()[1]) * self._page_kb
            finally:
                os.close(fd)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the only other source, although it is the peak
        return peak if sys.platform != "darwin" else peak // 1024


def unknown(item: Item) -> Report:
    """The task's name is not registered here."""
    message = f"no task named {item.task_name!r} is registered in this worker"
    return execute.report_of(TaskError(error_code=OperationalErrorCode.WORKER_RESOLUTION_ERROR, message=message))


def unexpected(task: AnyTask, error: BaseException) -> Report:
    """Something other than our stop left `execute.run`, as when code cancels itself."""
    return execute.report_of(execute.error_of_exception(task, error))


def too_large(error: BaseException) -> Report:
    """There is a result, but it is too large to be sent."""
    message = f"the result cannot be sent to the worker: {str(error) or type(error).__name__}"
    return execute.report_of(TaskError(error_code=OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message=message))


def _pack(token: int, report: Report, stopped: bool, run_ns: int, rss_kb: int) -> bytes:
    ok, result, code, message, leave_ms = report
    return wire.pack_done(token, wire.Done(ok, result, code, message, stopped, run_ns, rss_kb, leave_ms))
