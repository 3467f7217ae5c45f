"""The `horsies` command as a user types it: real processes, in a directory of the user's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from types import TracebackType

from tests import warm_start
from tests.support import eventually_sync

APP = """
import os
from pydantic import BaseModel
from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ.get("SHOP_DATABASE_URL", "postgresql://nobody@localhost:1/none")))


class Order(BaseModel):
    id: int
    items: list[str] = []


@app.task("shop.price")
def price(order: Order, discount: float = 0.0) -> TaskResult[float, TaskError]:
    return TaskResult(ok=len(order.items) * 10 * (1 - discount))


@app.task("shop.refuse")
def refuse(reason: str) -> TaskResult[None, TaskError]:
    return TaskResult(err=TaskError(error_code="REFUSED", message=reason))
"""


def run(*args: str, cwd: Path, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
    """One command to its end. Neither the caller's database nor his taste in colours reaches it."""
    return warm_start.run(args, cwd=cwd, env=environment(**env), timeout=timeout)


def environment(**env: str) -> dict[str, str]:
    hidden = {"DATABASE_URL", "NO_COLOR", "HORSIES_FORCE_COLOR", "FORCE_COLOR", "COLUMNS"}
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, **env}


class Started:
    """A command that runs until it is told to stop; `said` is what it has written to standard error so far."""

    def __init__(self, *args: str, cwd: Path, **env: str) -> None:
        self._process = warm_start.start(
            args, cwd=cwd, env=environment(**env), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Started:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(5)

    @property
    def said(self) -> str:
        return "".join(self._lines)

    def until_it_says(self, pattern: str, timeout: float = 30) -> str:
        """Wait for a line that matches, and return what was found."""

        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.said)
            assert match or self._process.poll() is None, f"it ended with {self._process.returncode}:\n{self.said}"
            return match

        match = eventually_sync(found, timeout, what=f"{pattern!r} in what the command says")
        assert match is not None, self.said
        return match[0]

    def send(self, sig: signal.Signals) -> None:
        self._process.send_signal(sig)

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end; the exit code."""
        self.send(sig)
        return self.wait()

    def wait(self, timeout: float = 30) -> int:
        code = self._process.wait(timeout)
        self._reader.join(5)
        return code

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            self._lines.extend(iter(stream.readline, ""))
