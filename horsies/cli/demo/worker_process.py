"""The worker of the demo: a real `horsies worker` in a separate process, which never outlives the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from horsies.core.worker.parent_death import die_with_parent

PROCESSES = 2
CONCURRENCY = 50
STOP_SECONDS = 20.0
TAIL_LINES = 30


class WorkerProcess:
    """Starts on request and ends with the context. Its output goes to a file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--processes", str(PROCESSES), "--concurrency", str(CONCURRENCY)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "horsies", "worker", "horsies.cli.demo.app:app", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which stops the worker itself
                preexec_fn=partial(die_with_parent, os.getpid()),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()  # its children end with it
            self._process.wait()

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> int | None:
        """Ask it to end, as an operator would; return its exit code, or None if it does not end."""
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:]) or "(it printed nothing)"
