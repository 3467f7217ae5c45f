"""A real uvicorn, as a user starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from tests.e2e.cli_support import environment
from tests.support import eventually_sync

ROOT = Path(__file__).parents[2]


class Uvicorn:
    """`uvicorn <app> --port 0 ...`; `url` is where it listens, and `said` what it has written so far."""

    def __init__(self, app: str, *options: str, cwd: Path = ROOT, **env: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", app, "--port", "0", *options],
            cwd=cwd,
            env=environment(**env),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Uvicorn:
        self.url = self.until_it_says(r"running on (http://\S+)")
        self.until_it_says("(startup complete)")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(5)

    def until_it_says(self, pattern: str, count: int = 1) -> str:
        def found() -> list[str]:
            matches = re.findall(pattern, self.said)
            assert len(matches) >= count or self._process.poll() is None, f"it ended:\n{self.said}"
            return matches if len(matches) >= count else []

        return eventually_sync(found, 60, what=f"{pattern!r} in what uvicorn says")[-1]

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        self._process.send_signal(sig)
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait(60)
        self._reader.join(5)
        return code

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self.said += line
