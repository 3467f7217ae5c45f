"""`horsies dev`: the worker with its reloads, the dashboard and the programs of the project as one tree of processes
with one log (X-31). They start in this order: what has to be done before, the programs and the worker, and the
dashboard when the app is known to be sound. Ctrl-C ends the programs, which may wait for results, then the worker, then
the dashboard. The embedded server ends with this process. A second Ctrl-C ends everything at once.
"""

import asyncio
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from horsies.dev.generations import Generation, Generations
from horsies.dev.lines import Log, names_of
from horsies.dev.programs import TreeProgram
from horsies.dev.watch import Watcher

DEV, WORKER, WEB = "dev", "worker", "web"
PROGRAM_S = 5.0
OURS = (sys.executable, "-m", "horsies")


@dataclass(frozen=True, slots=True)
class TreePlan:
    """What runs: the options of the worker, the port of the dashboard (None: no dashboard), and the words of each
    program."""

    module: str
    worker: tuple[str, ...]
    web: socket.socket | None
    before: tuple[tuple[str, ...], ...] = ()
    programs: tuple[tuple[str, ...], ...] = ()

    def names(self) -> list[str]:
        """The names in the log: ours, then those of `before` and of the programs."""
        return [DEV, WORKER, WEB, *names_of([*self.before, *self.programs], (DEV, WORKER, WEB))]

    def web_words(self) -> tuple[str, ...]:
        assert self.web is not None
        return (*OURS, "web", self.module, "--listening-on", str(self.web.fileno()), "--enable-actions")


class Tree:
    """All of it, from the first start to the end."""

    def __init__(self, plan: TreePlan, log: Log, watcher: Watcher, environment: Mapping[str, str]) -> None:
        self._log = log
        self._is_stopping = asyncio.Event()
        log.on_gone = self._is_stopping.set
        self._is_hurried = asyncio.Event()
        self._beside: set[asyncio.Task[None]] = set()
        make = partial(TreeProgram, log=log, environment=environment, on_end=self._tell_of_end)
        words = [*plan.before, *plan.programs]
        made = [make(name, one) for name, one in zip(plan.names()[3:], words, strict=True)]
        self._before, self._programs = made[: len(plan.before)], made[len(plan.before) :]
        self._web = None if plan.web is None else make(WEB, plan.web_words(), is_ours=True, keeps=[plan.web.fileno()])
        self._worker = Generations(
            (*OURS, "worker", plan.module, *plan.worker),
            watcher,
            say=self.say,
            environment=environment,
            stdout=asyncio.subprocess.PIPE,
            on_started=self._copy,
            on_ready=lambda: self._later(self._renew_web()),
            on_change=lambda: self._later(self._revive_programs()),
        )

    def say(self, text: str) -> None:
        self._log.line(DEV, text)

    def stop(self) -> None:
        """End in order; the second time, at once."""
        if self._is_stopping.is_set():
            self._is_hurried.set()
        self._is_stopping.set()

    async def run(self) -> int:
        """Until it is told to stop. The exit code is 1 if tasks were interrupted, or if something before failed."""
        try:
            if not await self._prepare():
                return 1
            return 0 if self._is_stopping.is_set() else await self._serve()
        finally:
            for program in self._everybody():
                program.kill()
                await program.wait()

    async def _prepare(self) -> bool:
        """Run what comes before, one after the other."""
        stopping = asyncio.create_task(self._is_stopping.wait())
        try:
            for program in self._before:
                await program.start()
                ending = asyncio.create_task(program.wait())
                await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if self._is_stopping.is_set():
                    return True
                if code := await ending:
                    self.say(f"nothing is started, because {program.name} ended with exit code {code}")
                    return False
            return True
        finally:
            stopping.cancel()

    async def _serve(self) -> int:
        for program in self._programs:
            await program.start()
        working = asyncio.create_task(self._worker.run())
        stopping = asyncio.create_task(self._is_stopping.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._is_stopping.is_set():
            self.say("stopping; another Ctrl-C ends everything at once")
        hurrying = asyncio.create_task(self._hurry())
        try:
            await asyncio.gather(*(program.stop(PROGRAM_S) for program in self._programs))
            self._worker.stop()
            code = await working
            if self._web is not None:
                await self._web.stop(PROGRAM_S)
            if self._beside:
                await asyncio.wait(self._beside, timeout=1)  # the last lines of the worker
            return code
        finally:
            for task in (hurrying, *self._beside):
                task.cancel()

    async def _hurry(self) -> None:
        """The second Ctrl-C. The worker has its own order for it (W-52)."""
        await self._is_hurried.wait()
        self.say("ending at once")
        for program in self._programs:
            program.kill()
        self._worker.stop()
        self._worker.stop()

    def _everybody(self) -> Sequence[TreeProgram]:
        return [*self._before, *self._programs, *([] if self._web is None else [self._web])]

    def _tell_of_end(self, program: TreeProgram, code: int) -> None:
        if self._is_stopping.is_set() or program in self._before:
            return
        self.say(f"{program.name} ended with exit code {code}; it starts again when a file changes")

    async def _revive_programs(self) -> None:
        for program in self._programs:
            if not program.is_running and not self._is_stopping.is_set():
                await program.start()

    async def _renew_web(self) -> None:
        """The dashboard knows the tasks of the code that it has loaded."""
        if self._web is not None and not self._is_stopping.is_set():
            await self._web.stop(PROGRAM_S)
            if not self._is_stopping.is_set():
                await self._web.start()

    def _copy(self, generation: Generation) -> None:
        assert generation.process.stdout is not None
        self._later(self._log.copy(WORKER, generation.process.stdout))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
