"""A worker that is replaced when a file changes, for `horsies worker --reload` (X-30), and for `horsies dev` also the
dashboard and the programs of the project (X-31): one list of programs, watched by one loop.

After a change the worker is told to stop, and the next one starts at once: running tasks finish in the old one, with
the code they began with.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from horsies.core.text import counted
from horsies.dev.program import Program
from horsies.dev.watch import Watcher

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK_S = 0.05
AGAIN_S = 1.0  # a worker that was killed starts again after this time
LONG_S = 15.0  # a start that takes longer is spoken of
PROGRAM_S = 5.0
SHOWN = 3


@dataclass(slots=True)
class Part:
    """One of the programs, under its name in the log. It may be started again and again."""

    name: str
    start: Callable[[], Program]
    program: Program | None = None  # while it runs, or nobody has been told of its end


class Tree:
    """Everything, from the first start to the end."""

    def __init__(
        self,
        start_worker: Callable[[], Program],
        watcher: Watcher,
        say: Callable[[str], None],
        *,
        overlap: bool = True,
        before: Sequence[Part] = (),
        programs: Sequence[Part] = (),
        web: Sequence[Part] = (),
    ) -> None:
        self._start_worker = start_worker
        self._watcher = watcher
        self._say = say
        self._overlap = overlap
        self._before, self._programs, self._web = before, programs, web
        self._worker: Program | None = None  # the newest; None while nothing should run, or until `_start_at`
        self._finishing: list[Program] = []  # older ones, which have been told to stop
        self._start_at: float | None = None
        self._started = 0.0
        self._is_ready = self._is_long = False
        self._stops = 0

    def stop(self, *_: object) -> None:
        """End in order; the second time, at once. A handler of signals."""
        self._stops += 1

    def run(self) -> int:
        """Until it is told to stop. The exit code is 1 if tasks were interrupted, or if something before failed."""
        with self._signals():
            try:
                if not self._prepare():
                    return 1
                if self._stops:
                    return 0
                self._watcher.start()
                for part in self._programs:
                    self._start(part)
                self._start_at = time.monotonic()
                while not self._stops:
                    self._look()
                    if changed := self._watcher.changed(TICK_S):
                        self._reload(changed)
                return self._end()
            finally:
                parts = (*self._before, *self._programs, *self._web)
                for program in (*(part.program for part in parts if part.program is not None), *self._workers()):
                    program.kill()

    def _prepare(self) -> bool:
        """Run what comes before, one after the other."""
        for part in self._before:
            self._start(part)
            program = part.program
            while program is not None and program.is_running and not self._stops:
                time.sleep(TICK_S)
            if self._stops:
                return True
            if code := 1 if program is None else program.wait() or 0:
                self._say(f"nothing is started, because {part.name} ended {how(code)}")
                return False
        return True

    def _start(self, part: Part) -> None:
        """In the place of the one that runs."""
        if part.program is not None:
            part.program.stop(PROGRAM_S)
            part.program = None
        try:
            part.program = part.start()
        except OSError as problem:
            self._say(f"{part.name} cannot be started: {problem.strerror}")

    def _look(self) -> None:
        """What has happened to the programs."""
        self._finishing = [worker for worker in self._finishing if worker.is_running]
        if self._start_at is not None and time.monotonic() >= self._start_at and (self._overlap or not self._finishing):
            self._worker, self._start_at = self._start_worker(), None
            self._started, self._is_ready, self._is_long = time.monotonic(), False, False
        if self._worker is not None:
            self._look_at(self._worker)
        for part in (*self._programs, *self._web):
            if part.program is not None and (code := part.program.code) is not None:
                part.program = None
                self._say(f"{part.name} ended {how(code)}; it starts again when a file changes")

    def _look_at(self, worker: Program) -> None:
        """The newest one. The dashboard is renewed with it, because it knows the tasks of the code that it loaded."""
        if not self._is_ready and worker.is_ready:
            self._is_ready = True
            for web in self._web:
                self._start(web)
        if (code := worker.code) is not None:
            self._worker = None
            worker.kill()
            if code < 0 and self._is_ready:
                self._say(f"the worker was killed by {signal_name(-code)}: starting it again")
                self._start_at = time.monotonic() + AGAIN_S
                return
            cause = how(code) if self._is_ready or code < 0 else ""
            failed = f"the worker ended {cause}" if cause else "the worker cannot start with this code"
            self._say(f"{failed}; nothing runs until a file changes")
        elif not self._is_ready and not self._is_long and time.monotonic() - self._started > LONG_S:
            self._is_long = True
            self._say("the worker is not ready yet: it imports the app, or waits for the database")

    def _reload(self, files: Sequence[Path]) -> None:
        more = f" and {counted(len(files) - SHOWN, 'other file')}" if len(files) > SHOWN else ""
        self._say(f"{', '.join(map(_short, files[:SHOWN]))}{more} changed: starting a new worker")
        if self._worker is not None:
            self._worker.send_signal(signal.SIGTERM)
            self._finishing.append(self._worker)
            self._worker = None
        self._start_at = time.monotonic()
        for part in self._programs:
            if part.program is None or not part.program.is_running:
                self._start(part)

    def _end(self) -> int:
        """The programs, which may wait for results, then the workers, then the dashboard. A worker that already
        finishes its tasks for a reload is not told a second time, which would interrupt them."""
        self._say("stopping; another Ctrl-C stops everything immediately")
        programs = [part.program for part in self._programs if part.program is not None]
        for program in programs:
            program.send_signal(signal.SIGINT, group=True)
        self._wait(programs, PROGRAM_S)
        for program in programs:
            program.kill()
        if self._worker is not None:
            self._worker.send_signal(signal.SIGTERM)
        workers = self._workers()
        self._wait(workers)
        is_cut_off = self._stops > 1 and any(worker.is_running for worker in workers)
        if is_cut_off:
            self._say("stopping immediately")
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
        codes = [worker.wait() or 0 for worker in workers]
        for web in self._web:
            if web.program is not None:
                web.program.stop(PROGRAM_S)
        return 1 if is_cut_off or any(code > 0 for code in codes) else 0

    def _workers(self) -> list[Program]:
        return [*self._finishing, *([self._worker] if self._worker is not None else [])]

    def _wait(self, programs: Sequence[Program], seconds: float = float("inf")) -> None:
        """Until they have ended, or the time is over, or somebody is in a hurry."""
        until = time.monotonic() + seconds
        while self._stops < 2 and time.monotonic() < until and any(program.is_running for program in programs):
            time.sleep(TICK_S)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.stop) for number in STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def how(code: int) -> str:
    """How a program ended."""
    return f"with exit code {code}" if code >= 0 else f"by {signal_name(-code)}"


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _short(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
