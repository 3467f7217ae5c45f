"""One worker after the other, each with the code of its time (X-30).

When a file changes, the worker is told to stop, and the next one starts at once: tasks that run finish in the old one,
with the code they began with, and what it had claimed but not begun goes back to the queue. So a task of an hour does
not hold up the others. A worker that cannot start has shown why; then nothing runs until the next change. See
docs/decisions/0025-dev-loop.md.

Everything that happens is an event, and one loop handles them in turn. The workers end with this process, however
it ends.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from horsies.core.child.forkserver import die_with_parent
from horsies.core.text import counted
from horsies.dev.reports import VARIABLE
from horsies.dev.watch import MOST_DIRECTORIES, Watcher

AGAIN_S = 1.0  # a worker that was killed starts again after this time
LONG_S = 15.0  # a start that takes longer is spoken of
SHOWN = 3
MOST_REPORTED = 1 << 20


@dataclass(frozen=True, slots=True)
class FilesChanged:
    files: list[Path]


@dataclass(frozen=True, slots=True)
class Told:
    """Somebody wants all of it to stop."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """The time for another start has come, unless there was one."""

    after: int


@dataclass(frozen=True, slots=True)
class Blind:
    """Nobody watches the files any more."""


@dataclass(slots=True, eq=False)
class Generation:
    """One worker process. `signals` counts how often it was told to stop by this program."""

    number: int
    process: asyncio.subprocess.Process
    signals: int = 0
    is_ready: bool = False

    def tell(self) -> None:
        """Once: finish what runs. Twice: end now (W-50, W-52)."""
        self.signals += 1
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Reported:
    generation: Generation
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    generation: Generation
    code: int


@dataclass(frozen=True, slots=True)
class StartsLong:
    generation: Generation


Event: TypeAlias = FilesChanged | Told | StartAgain | Blind | Reported | Ended | StartsLong


class Generations:
    """Runs the command, and replaces it when a file changes."""

    def __init__(
        self,
        command: Sequence[str],
        watcher: Watcher,
        *,
        say: Callable[[str], None],
        environment: Mapping[str, str],
        overlap: bool = True,
        stdout: int | None = None,
        on_started: Callable[[Generation], None] = lambda generation: None,
        on_ready: Callable[[], None] = lambda: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._command = tuple(command)
        self._watcher = watcher
        self._say = say
        self._environment = dict(environment)
        self._overlap = overlap
        self._stdout = stdout
        self._on_started, self._on_ready, self._on_change = on_started, on_ready, on_change
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._alive: list[Generation] = []
        self._number = 0
        self._wanted = 0  # the number of the generation that should run
        self._is_stopping = self._is_cut_off = False
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Let the worker finish what runs, then end; the second time, end now."""
        self._events.put_nowait(Told())

    async def run(self) -> int:
        """Until it is told to stop. The exit code is 1 if tasks were interrupted."""
        if self._watcher.is_cut:
            self._say(f"there are more than {MOST_DIRECTORIES} directories: changes are seen in the first of them only")
        watching = asyncio.create_task(self._watch())
        try:
            await self._start()
            while not (self._is_stopping and not self._alive):
                if watching.done():
                    await watching  # it never ends by itself: this raises
                await self._handle(await self._events.get())
        finally:
            await _cancelled([watching, *self._tasks])
            for generation in self._alive:
                with suppress(ProcessLookupError):
                    generation.process.kill()
        return 1 if self._is_cut_off else 0

    async def _handle(self, event: Event) -> None:
        match event:
            case FilesChanged(files):
                await self._replace(files)
            case Told():
                self._tell_all()
            case StartAgain(after):
                if after == self._wanted and not self._is_stopping:
                    await self._start()
            case Reported(generation, report):
                self._heed(generation, report)
            case Ended(generation, code):
                await self._bury(generation, code)
            case StartsLong(generation):
                self._tell_of_long_start(generation)
            case Blind():
                pass  # the loop raises what has ended it

    async def _replace(self, files: list[Path]) -> None:
        if self._is_stopping:
            return
        named = ", ".join(_short(file) for file in files[:SHOWN])
        more = f" and {counted(len(files) - SHOWN, 'other file')}" if len(files) > SHOWN else ""
        self._say(f"{named}{more} changed: starting a new worker")
        self._on_change()
        self._wanted += 1
        for generation in self._alive:
            if generation.signals == 0:
                generation.tell()
        if self._overlap or not self._alive:
            await self._start()

    async def _start(self) -> None:
        self._number = self._wanted
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._stdout,
                stderr=None if self._stdout is None else asyncio.subprocess.STDOUT,
                env={**self._environment, VARIABLE: str(writing)},
                pass_fds=(writing,),
                start_new_session=True,  # Ctrl-C is for this process, which tells the worker itself
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        generation = Generation(self._number, process)
        self._alive.append(generation)
        self._on_started(generation)
        self._spawn(self._wait_for(generation))
        self._spawn(self._listen(generation, reading))
        asyncio.get_running_loop().call_later(LONG_S, self._events.put_nowait, StartsLong(generation))

    def _tell_all(self) -> None:
        """The first time, a worker that already finishes its tasks for a reload is left alone."""
        for generation in self._alive:
            if generation.signals == 0 or self._is_stopping:
                generation.tell()
        self._is_cut_off = self._is_stopping
        self._is_stopping = True

    def _heed(self, generation: Generation, report: dict[str, Any]) -> None:
        self._watcher.add(Path(root) for root in report.get("roots", ()))
        if report.get("ready") and generation.number == self._wanted and not self._is_stopping:
            generation.is_ready = True
            self._on_ready()

    async def _bury(self, generation: Generation, code: int) -> None:
        self._alive.remove(generation)
        if self._is_stopping:
            self._is_cut_off = self._is_cut_off or code > 0
            return
        if generation.number == self._wanted:
            self._tell_of_end(generation, code)
        elif not self._overlap and not self._alive:
            await self._start()

    def _tell_of_end(self, generation: Generation, code: int) -> None:
        """The newest one has ended, and nobody has told it to."""
        if code < 0 and generation.is_ready:
            self._say(f"the worker was killed by {_signal_name(-code)}: starting it again")
            asyncio.get_running_loop().call_later(AGAIN_S, self._events.put_nowait, StartAgain(self._wanted))
            return
        how = f"was killed by {_signal_name(-code)}" if code < 0 else "cannot start with this code"
        if generation.is_ready:
            how = f"has ended with exit code {code}"
        self._say(f"the worker {how}; nothing runs until a file changes")

    def _tell_of_long_start(self, generation: Generation) -> None:
        if generation in self._alive and not generation.is_ready and generation.signals == 0:
            self._say("the worker is not ready yet: it imports the app, or waits for the database")

    async def _watch(self) -> None:
        try:
            async for files in self._watcher.changes():
                self._events.put_nowait(FilesChanged(files))
        finally:
            self._events.put_nowait(Blind())

    async def _wait_for(self, generation: Generation) -> None:
        self._events.put_nowait(Ended(generation, await generation.process.wait()))

    async def _listen(self, generation: Generation, fd: int) -> None:
        """What a worker says about itself, a JSON object on each line."""
        reader = asyncio.StreamReader(limit=MOST_REPORTED)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
        )
        with suppress(ValueError):  # it is not one of ours, or was killed while it wrote
            while line := await reader.readline():
                self._events.put_nowait(Reported(generation, json.loads(line)))
        transport.close()

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _short(file: Path) -> str:
    with suppress(ValueError):
        return str(file.relative_to(Path.cwd()))
    return str(file)


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
