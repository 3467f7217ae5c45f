"""Keeps what tasks log and print (P-51a), if the app has `task_logs`: a handler of the root logger, and a standard
output that hands on what it gets. Both only leave notes (`notes.py`), which cost the code of a task a few microseconds,
and neither can make it fail.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from time import time
from typing import Any, TextIO

from horsies.core import logs
from horsies.core.child.notes import Notes
from horsies.core.models.notes import TaskLogs
from horsies.core.tasks.context import current_run


def begin(notes: Notes, wanted: TaskLogs) -> None:
    """From now on. The app has been loaded, so that a configuration of logging that replaces handlers has been made."""
    notes.limits = wanted
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[wanted.level]
    if level < root.level:
        # The output of the worker stays as it was.
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(level)
    root.addHandler(NoteHandler(notes, level))
    if wanted.capture_stdout:
        sys.stdout = NotingStream(sys.stdout, notes)


class NoteHandler(logging.Handler):
    """Leaves a note of every record that is made inside a task."""

    def __init__(self, notes: Notes, level: int) -> None:
        super().__init__(level)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        run = current_run()
        if run is None or run.station is None:
            return
        with contextlib.suppress(Exception):  # a record that cannot be formatted
            text = record.getMessage()
            if trace := logs.trace_of(_PLAIN, record):
                text = f"{text}\n{trace}"
            self._notes.log(run.token, record.created, record.levelname, record.name, text)


_PLAIN = logging.Formatter()


class NotingStream(io.TextIOBase):
    """The standard output of a child. What a task prints goes to the log of the task as well."""

    def __init__(self, stream: TextIO, notes: Notes) -> None:
        self._stream = stream
        self._notes = notes

    def write(self, text: str, /) -> int:
        count = self._stream.write(text)
        run = current_run()
        if run is not None and run.station is not None:
            with contextlib.suppress(Exception):
                self._notes.printed(run.token, time(), text)
        return count

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """It belongs to the process."""

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # `buffer`, `reconfigure` and others

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._stream.errors
