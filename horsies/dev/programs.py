"""A program of the tree of `horsies dev`, whose lines go to its log (X-31). Ours end by a signal, and with this
process. Those of the project are on a leash (`leash.py`), because they may start processes that nobody knows.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from horsies.core.child.forkserver import die_with_parent
from horsies.dev.leash import INTERRUPT
from horsies.dev.lines import Log

LEASH = Path(__file__).with_name("leash.py")
KILL = b"k"


class TreeProgram:
    """Starts on request, and can be started again when it has ended. It has the open files `keeps` too."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        *,
        log: Log,
        environment: Mapping[str, str],
        on_end: Callable[["TreeProgram", int], None],
        is_ours: bool = False,
        keeps: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._words = tuple(words)
        self._log = log
        self._environment = dict(environment)
        self._on_end = on_end
        self._is_ours = is_ours
        self._keeps = tuple(keeps)
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[int] | None = None
        self._is_asked = False
        self._starting = asyncio.Lock()  # two that ask at once must not start it twice

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    async def start(self) -> None:
        """Nothing happens if it runs."""
        async with self._starting:
            if not self.is_running:
                await self._start()

    async def _start(self) -> None:
        leash = () if self._is_ours else (sys.executable, "-P", str(LEASH))
        self._is_asked = False
        self._process = await asyncio.create_subprocess_exec(
            *leash,
            *self._words,
            stdin=asyncio.subprocess.DEVNULL if self._is_ours else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for us
            pass_fds=self._keeps,
            preexec_fn=partial(die_with_parent, os.getpid()) if self._is_ours else None,
        )
        self._running = asyncio.create_task(self._run(self._process))

    async def wait(self) -> int:
        """The exit code."""
        return 0 if self._running is None else await asyncio.shield(self._running)

    def interrupt(self) -> None:
        """Let it end by itself."""
        self._tell(signal.SIGTERM, INTERRUPT)

    def kill(self) -> None:
        self._tell(signal.SIGKILL, KILL)

    async def stop(self, seconds: float) -> None:
        """Let it end within this time, otherwise kill it."""
        self.interrupt()
        try:
            await asyncio.wait_for(self.wait(), seconds)
        except TimeoutError:
            self.kill()
            await self.wait()

    def _tell(self, number: signal.Signals, word: bytes) -> None:
        self._is_asked = True
        if self._process is None or not self.is_running:
            return
        with suppress(OSError, RuntimeError):  # it has just ended
            if self._is_ours:
                self._process.send_signal(number)
            elif self._process.stdin is not None:
                self._process.stdin.write(word)

    async def _run(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        copying = asyncio.create_task(self._log.copy(self.name, process.stdout))
        code = await process.wait()
        # What a process that has left the tree still holds open is not waited for.
        await asyncio.wait({copying}, timeout=1)
        copying.cancel()
        if not self._is_asked:
            self._on_end(self, code)
        return code
