"""The commands of horsies that a demo starts, each in a process of its own. None of them outlives the demo."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from horsies.core.child.forkserver import die_with_parent

TAIL_LINES = 30


class Program:
    """Starts on request and ends with the context. Its output goes to a file. It has the open files `keeps` too."""

    def __init__(self, log: Path, *words: str, keeps: Sequence[int] = ()) -> None:
        self._log = log
        self._words = words
        self._keeps = tuple(keeps)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self._words[0]

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "horsies", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which stops it itself
                pass_fds=self._keeps,
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

    def tell_to_stop(self) -> None:
        """As an operator would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float) -> int | None:
        """Its exit code after it was told to stop; None if it does not end within this time."""
        if self._process is None:
            return None
        self.tell_to_stop()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def last_words(self) -> str:
        return "\n".join(self.said().splitlines()[-TAIL_LINES:]) or "(it printed nothing)"
