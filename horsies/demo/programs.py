"""The processes of the shop: commands of horsies, as anyone would start them. However the demo ends, they end too."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from horsies.core.errors import HorsiesError
from horsies.demo import shop
from horsies.dev.program import Program

T = TypeVar("T")
Command: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]
APP = "horsies.demo.shop:app"
GRACE = ("--shutdown-grace", "2s")
IMAGES_WORKER = "images worker"
SHOP: dict[str, Command] = {
    "orders worker": ("worker", APP, "--queues", f"{shop.ORDERS},{shop.MAIL}", "--processes", "2", *GRACE),
    IMAGES_WORKER: ("worker", APP, "--queues", shop.IMAGES, "--processes", "4", *GRACE),
    "scheduler": ("scheduler", APP),
}
# What a program that is started again has in its log: it was drained, or another one took its port at the same moment.
ANOTHER = ("asked this worker to drain", "cannot listen on")
STOP_S = 15.0
WATCH_S = 0.1


class ShopPrograms:
    """The programs by name, for as long as the block lasts. Their output is in the directory."""

    def __init__(self, directory: Path, commands: Mapping[str, Command]) -> None:
        self._directory = directory
        self._commands = commands
        self._programs: dict[str, Program] = {}

    def __enter__(self) -> Self:
        for name in self._commands:
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def replace(self, name: str) -> int:
        """Kill this one, and start another in its place; the pid of the killed one."""
        killed = self._programs[name]
        killed.kill()
        self._start(name)
        return killed.pid

    def stop(self) -> None:
        """Let all of them end by themselves, at the same time; those that do not are killed."""
        for program in self._programs.values():
            program.send_signal(signal.SIGTERM)
        for program in self._programs.values():
            program.stop(STOP_S)

    def log(self, name: str) -> str:
        """What it has printed so far."""
        return self._log_of(name).read_text(errors="replace")

    async def run_beside(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work while all programs run; `HorsiesError` as soon as one of them has ended. A drained worker is
        started again, as a supervisor would do it."""
        working, watching = asyncio.create_task(work), asyncio.create_task(self._watch())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            return await working
        finally:
            working.cancel()
            watching.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            for name, program in list(self._programs.items()):
                if program.is_running:
                    continue
                if not any(sign in self.log(name) for sign in ANOTHER):
                    raise HorsiesError(f"the {name} of the demo has ended", notes=[program.last_lines()])
                self._start(name)
            await asyncio.sleep(WATCH_S)

    def _start(self, name: str) -> None:
        log, command = self._log_of(name), self._commands[name]
        log.unlink(missing_ok=True)
        words = command() if callable(command) else command
        self._programs[name] = Program([sys.executable, "-m", "horsies", *words], output=log)

    def _log_of(self, name: str) -> Path:
        return self._directory / f"{name}.log"
