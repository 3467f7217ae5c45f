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
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from horsies.core.worker.config import locator_of
from horsies.testing.doomed import WorkerOrder
from horsies.testing.moments import Doom

if TYPE_CHECKING:
    from horsies.core.app import Horsies

READY_S = 60.0
STOP_S = 15.0
LOOK_S = 0.02
LAST_LINES = 30


class WorkerFailed(RuntimeError):
    """The worker process did not become ready."""


class WorkerProcess:
    """One worker. `with WorkerProcess(app): …` starts it and stops it."""

    def __init__(
        self, app: Horsies, *, processes: int = 1, with_scheduler: bool = False, doom: Doom | None = None
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="horsies-worker-"))
        self._ready = self._directory / "ready"
        self._log = self._directory / "log"
        self._order = WorkerOrder(
            locator=locator_of(app),
            database_url=app.config.broker.database_url.get_secret_value(),
            ready=str(self._ready),
            processes=processes,
            with_scheduler=with_scheduler,
            doom=None if doom is None else doom.to_json(),
        )
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it, and return when it is ready."""
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "horsies.testing.doomed"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed below
            self._process.stdin.write(self._order.to_json() + "\n")
            self._process.stdin.flush()
        self._wait_until_ready()

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
            if self.is_running:
                self.stop()
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
        for file in (self._ready, self._log):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._directory.rmdir()

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
        while not self._ready.exists():
            ended = self._running.poll()
            if ended is not None or time.monotonic() > until:
                said = "\n".join(self.log.splitlines()[-LAST_LINES:])
                how = f"ended with code {ended}" if ended is not None else f"was not ready after {READY_S:.0f} s"
                self.close()
                raise WorkerFailed(f"the worker of the test {how}; it said:\n{said}")
            time.sleep(LOOK_S)

    def __enter__(self) -> WorkerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self.close()
