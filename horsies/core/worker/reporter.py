"""How a child reports that a task has ended: the DONE frame, its measurements, and results that do not come from the
task.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from time import perf_counter_ns

from horsies.core import execution
from horsies.core.execution import AnyTask, Report
from horsies.core.models.tasks import OperationalErrorCode, TaskError
from horsies.core.worker import wire
from horsies.core.worker.inbox import Inbox, Item
from horsies.core.worker.wire import Done, WireError

RSS_MAX_AGE_NS = 50_000_000

_NO_REPORT = Report(ok=False, result="", error_code=None, error_message=None)


class Reporter:
    """Packs DONE frames and releases their tasks."""

    def __init__(self, inbox: Inbox) -> None:
        self.wanted_stopped: set[int] = set()  # tokens the supervisor wants stopped
        self._inbox = inbox
        self._memory = Memory()

    def done(self, token: int, report: Report | None, *, stopped: bool, began: int) -> bytes:
        """The DONE frame of a task that began at `began`. Without a report, it was stopped before it had one."""
        now = perf_counter_ns()
        report = report or _NO_REPORT
        rss_kb = self._memory.rss_kb(now)
        try:
            frame = _pack(token, report, stopped, now - began, rss_kb)
        except (WireError, MemoryError) as error:
            frame = _pack(token, too_large(error), stopped, now - began, rss_kb)
        self._inbox.held.discard(token)
        self.wanted_stopped.discard(token)
        return frame


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
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # no better source: the peak, not the present
        return peak if sys.platform != "darwin" else peak // 1024


def unknown(item: Item) -> Report:
    """The task's name is not registered here."""
    message = f"no task named {item.task_name!r} is registered in this worker"
    return execution.report_of(TaskError(error_code=OperationalErrorCode.WORKER_RESOLUTION_ERROR, message=message))


def unexpected(task: AnyTask, error: BaseException) -> Report:
    """Something other than our stop left `execution.run`, as when code cancels itself."""
    return execution.report_of(execution.error_of_exception(task, error))


def too_large(error: BaseException) -> Report:
    """There is a result, but it is too large to be sent."""
    message = f"the result cannot be sent to the worker: {str(error) or type(error).__name__}"
    return execution.report_of(TaskError(error_code=OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message=message))


def _pack(token: int, report: Report, stopped: bool, run_ns: int, rss_kb: int) -> bytes:
    code, message = report.error_code, report.error_message
    return wire.pack_done(token, Done(report.ok, report.result, code, message, stopped, run_ns, rss_kb))
