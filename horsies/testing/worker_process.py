"""A real worker process for a test: started on the app and the database of the test, ready when `start` returns, and
gone when the test is. What it logs is in a file, which is shown if it does not become ready.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from horsies.core.worker.config import locator_for_children
from horsies.testing.doomed import GO, WorkerOrder
from horsies.testing.moments import Doom

if TYPE_CHECKING:
    from horsies.core.app import Horsies

READY_S = 60.0
STOP_S = 15.0
LOOK_S = 0.02
LAST_LINES = 30


class WorkerFailed(RuntimeError):
    """The worker process did not become ready."""


class SpawnedWorker:
    """One worker. `with SpawnedWorker(app): …` starts it and stops it."""

    def __init__(
        self, app: Horsies, *, processes: int = 1, with_scheduler: bool = False, doom: Doom | None = None
    ) -> None:
        self._order = WorkerOrder(
            locator=locator_for_children(app),
            database_url=app.config.broker.database_url.get_secret_value(),
            processes=processes,
            with_scheduler=with_scheduler,
            doom=None if doom is None else doom.to_json(),
        )
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._log = ""  # what it had logged when its files were removed

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log if self._directory is None else self._file("log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, and return when it is ready."""
        if self._process is None:
            self.prepare()
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed below
            self._say(GO)
        self._wait_until_ready()

    def prepare(self) -> None:
        """Start the process, which imports the app and waits for `start`. This saves time later."""
        self._directory = tempfile.TemporaryDirectory(prefix="horsies-worker-")
        order = replace(self._order, ready=str(self._file("ready")))
        with self._file("log").open("w") as log:
            self._process = start_process(log)
        with contextlib.suppress(BrokenPipeError):
            self._say(order.to_json())

    def _file(self, name: str) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / name

    def _say(self, line: str) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write(f"{line}\n")
        self._running.stdin.flush()

    def stop(self) -> int:
        """Let it finish its tasks and end; its exit code."""
        process = self._running
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return process.wait()

    def kill(self) -> None:
        """End it as a crash would. Its children end by themselves."""
        if self.is_running:
            self._running.kill()
            self._running.wait()

    def close(self) -> None:
        """Stop it if it runs, and remove its files."""
        if self._process is not None:
            if self.is_running and self._file("ready").exists():
                self.stop()
            self.kill()
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
        if self._directory is not None:
            self._log = self.log
            self._directory.cleanup()
            self._directory = None

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, or None if it still runs after this time."""
        try:
            return self._running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    @property
    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the worker has not been started")
        return self._process

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + READY_S
        while not self._file("ready").exists():
            ended = self._running.poll()
            if ended is not None or time.monotonic() > until:
                said = "\n".join(self.log.splitlines()[-LAST_LINES:])
                how = f"ended with code {ended}" if ended is not None else f"was not ready after {READY_S:.0f} s"
                self.close()
                raise WorkerFailed(f"the worker of the test {how}; it said:\n{said}")
            time.sleep(LOOK_S)

    def __enter__(self) -> SpawnedWorker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self.close()


def start_process(log: IO[str]) -> subprocess.Popen[str]:
    """Start the program of a worker, in its own session."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-c", "from horsies.testing.doomed import main; main()"],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
