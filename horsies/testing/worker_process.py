"""A real worker process for a test: started on the app and the database of the test, ready when `start` returns, and
gone when the test is. What it logs is kept, and shown if it does not become ready.
"""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from horsies.core.worker.config import locator_for_children
from horsies.dev.program import NotReady, Program
from horsies.testing.doomed import GO, WorkerOrder
from horsies.testing.moments import Doom

if TYPE_CHECKING:
    from horsies.core.app import Horsies

READY_S = 60.0
STOP_S = 15.0
LAST_LINES = 30
MAIN = (sys.executable, "-c", "from horsies.testing.doomed import main; main()")


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
        self._program: Program | None = None
        self._lines: list[str] = []

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def is_running(self) -> bool:
        return self._program is not None and self._program.is_running

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return "\n".join(self._lines)

    def start(self) -> None:
        """Start it, and return when it is ready."""
        if self._program is None:
            self.prepare()
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed below
            self._started.write(f"{GO}\n")
        try:
            self._started.wait_until_ready(READY_S)
        except NotReady:
            code = self._started.code
            self.close()
            how = f"was not ready after {READY_S:.0f} s" if code is None else f"ended with code {code}"
            said = "\n".join(self._lines[-LAST_LINES:])
            raise WorkerFailed(f"the worker of the test {how}; it said:\n{said}") from None

    def prepare(self) -> None:
        """Start the process, which imports the app and waits for `start`. This saves time later."""
        path = os.pathsep.join(entry for entry in sys.path if entry)
        env = {**os.environ, "PYTHONPATH": path}
        self._program = Program(MAIN, output=self._lines.append, env=env, says_ready=True, has_input=True)
        with contextlib.suppress(BrokenPipeError):
            self._program.write(f"{self._order.to_json()}\n")

    def stop(self) -> int:
        """Let it finish its tasks and end; its exit code."""
        return self._started.stop(STOP_S)

    def kill(self) -> None:
        """End it as a crash would. Its children end by themselves."""
        if self._program is not None:
            self._program.kill()

    def close(self) -> None:
        """Stop it if it runs."""
        if self._program is not None and self._program.is_ready:
            self.stop()
        self.kill()

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, or None if it still runs after this time."""
        return self._started.wait(timeout_s)

    @property
    def _started(self) -> Program:
        if self._program is None:
            raise RuntimeError("the worker has not been started")
        return self._program

    def __enter__(self) -> SpawnedWorker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self.close()
