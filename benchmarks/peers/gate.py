"""Where a peer's worker waits until all its processes are connected, and how it hears that it should stop.

Without it the first of two processes would work alone while the second still imports.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

VARIABLE = "PEERS_GATE"
LOOK_S = 0.002


class Gate:
    """A directory: each process leaves a file in it when it is ready, and goes on when it finds the one named `go`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def given(cls) -> Gate:
        return cls(Path(os.environ[VARIABLE]))

    @property
    def ready(self) -> int:
        return len(list(self._directory.glob("ready-*")))

    def open(self) -> None:
        (self._directory / "go").touch()

    async def wait(self) -> None:
        (self._directory / f"ready-{os.getpid()}").touch()
        while not (self._directory / "go").exists():
            await asyncio.sleep(LOOK_S)

    def on_stop(self, stop: Callable[[], object]) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
