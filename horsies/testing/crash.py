"""Crash tests (X-14). `Crash` is one of them: a real worker that dies at a moment, another one that recovers what it
held, and the wait until everything has come to its end. `every_crash` does so for each moment, and checks after each
what must be true whatever has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from horsies.core.store import testing as store
from horsies.core.tasks.definition import TaskDefinition
from horsies.testing.moments import Doom, Moment
from horsies.testing.worker_process import SpawnedWorker

if TYPE_CHECKING:
    from horsies.core.app import Horsies

SETTLE_S = 60.0
CALM_S = 0.3  # so long nothing may be left to do before everything counts as ended
LOOK_S = 0.05
REACH_S = 5.0  # so long after everything has ended the moment may still come
A_LITTLE_S = 0.01

Scenario: TypeAlias = Callable[[], object]


class MomentNotReached(AssertionError):
    """Everything has ended, and the moment has not come: perhaps the scenario does not send this task."""


class NotSettled(AssertionError):
    """After the crash, something was left that nobody has brought to its end."""


class TaskUnknown(NotSettled):
    """No worker can run it: its module is not one that the app imports."""


class Crash:
    """One crash, as a context manager: what is sent inside the block runs in a worker that dies at the moment. Leaving
    the block waits until another worker has recovered everything, and everything has ended."""

    def __init__(
        self, app: Horsies, task: TaskDefinition[Any, Any] | None, at: Moment | str, settle_s: float = SETTLE_S
    ) -> None:
        self.moment = _moment(at)
        self._app = app
        self._settle_s = settle_s
        self._files = tempfile.TemporaryDirectory(prefix="horsies-crash-")
        self._mark = Path(self._files.name) / "happened"
        self._name = None if task is None else task.task_name
        self._doomed = SpawnedWorker(app, doom=Doom(self.moment, self._name, str(self._mark)))
        self._heir = SpawnedWorker(app)  # recovers what the doomed one has left, if that dies
        self._problem: BaseException | None = None
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._follow, name="horsies crash", daemon=True)

    @property
    def has_happened(self) -> bool:
        return self._mark.exists()

    def __enter__(self) -> Crash:
        try:
            if self.moment.is_end_of_worker:
                self._heir.prepare()
            self._doomed.start()
        except BaseException:
            self._clear_away()
            raise
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._settle()
        finally:
            self._is_over.set()
            self._watch.join()
            self._clear_away()

    def _clear_away(self) -> None:
        self._heir.close()
        self._doomed.close()
        self._files.cleanup()

    def _follow(self) -> None:
        """Start a worker that recovers, as soon as the first one is dead; the test may wait for results meanwhile."""
        while not self._is_over.is_set():
            if self._doomed.wait(LOOK_S) is not None:
                try:
                    self._heir.start()
                except Exception as problem:
                    self._problem = problem
                return

    def _settle(self) -> None:
        until = time.monotonic() + self._settle_s
        calm_since: float | None = None
        while True:
            if self._problem is not None:
                raise self._problem
            work = self._app.get_broker().bridge.run(self._look)
            now = time.monotonic()
            is_done = not (work.in_flight or work.due or work.retries or work.workflows)
            calm_since = (calm_since or now) if is_done else None
            if calm_since is not None and self.has_happened and now - calm_since >= CALM_S:
                return
            if calm_since is not None and not self.has_happened and now - calm_since >= REACH_S:
                what = "a task" if self._name is None else f"task {self._name!r}"
                raise MomentNotReached(f"{what} never came to the moment {self.moment.value!r}")
            if work.unknown:
                names = ", ".join(map(repr, work.unknown))
                where = "put it into a module that the app imports (app.discover_tasks)"
                raise TaskUnknown(f"no worker knows the task {names}: {where}")
            if now > until:
                raise NotSettled(f"after {self._settle_s:.0f} s there was left: {_described(work)}")
            time.sleep(LOOK_S)

    async def _look(self) -> store.OpenWork:
        """Whether anything is left to do. Nobody wants to wait for a retry whose time is still to come."""
        async with self._app.get_broker().hub.connection() as conn:
            work = await store.open_work(conn)
            if work.retries and not work.in_flight and not work.due:
                await store.travel(conn, work.next_retry_s + A_LITTLE_S)
                await store.ring(conn)
        return work


@dataclass(frozen=True, slots=True)
class CrashOutcome:
    """What one moment has shown; `problem` is None if the invariant held."""

    moment: Moment
    problem: BaseException | None

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.moment.value}: held"
        why = "".join(traceback.format_exception_only(self.problem)).strip()
        what = "NOT SETTLED" if isinstance(self.problem, NotSettled) else "BROKEN"
        return f"{self.moment.value}: {what}\n" + "\n".join(f"      {line}" for line in why.splitlines())


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What all moments have shown."""

    outcomes: list[CrashOutcome] = field(default_factory=list)

    @property
    def broken(self) -> list[Moment]:
        """The moments after which the invariant did not hold."""
        return [outcome.moment for outcome in self.outcomes if outcome.problem is not None]

    def __str__(self) -> str:
        lines = [f"  {outcome}" for outcome in self.outcomes]
        if not self.broken:
            return "\n".join(["the invariant held after a crash at every moment", *lines])
        names = ", ".join(moment.value for moment in self.broken)
        return "\n".join([f"the invariant did not hold after a crash at: {names}", *lines])


class InvariantBroken(AssertionError):
    """Something was not true after a crash; `report` says after which."""

    def __init__(self, report: CrashReport) -> None:
        super().__init__(str(report))
        self.report = report


def every_crash(
    app: Horsies,
    scenario: Scenario,
    check: Scenario | None,
    *,
    task: TaskDefinition[Any, Any] | None,
    setup: Scenario | None,
    moments: Iterable[Moment | str] | None,
    settle_s: float = SETTLE_S,
) -> CrashReport:
    """Run the scenario once for each moment; raise `InvariantBroken` if something was not true after one of them."""

    def problem_at(moment: Moment) -> BaseException | None:
        if setup is not None:
            _call(setup)
        try:
            with Crash(app, task, moment, settle_s):
                _call(scenario)
            if check is not None and _call(check) is False:
                raise AssertionError("the check returned False")
        except (MomentNotReached, TaskUnknown):
            raise  # the test is wrong, not what it tests
        except Exception as problem:
            return problem
        return None

    wanted = list(Moment) if moments is None else [_moment(one) for one in moments]
    report = CrashReport([CrashOutcome(moment, problem_at(moment)) for moment in wanted])
    if report.broken:
        raise InvariantBroken(report) from next(one.problem for one in report.outcomes if one.problem is not None)
    return report


def _call(fn: Scenario) -> object:
    """Call it; what it returns is awaited if that is needed, on a loop in another thread."""
    answer = fn()
    if not inspect.isawaitable(answer):
        return answer

    async def awaited() -> object:
        return await answer

    with ThreadPoolExecutor(1) as aside:
        return aside.submit(asyncio.run, awaited()).result()


def _moment(at: Moment | str) -> Moment:
    with contextlib.suppress(ValueError):
        return Moment(str(at).replace("_", " "))
    known = ", ".join(repr(moment.value) for moment in Moment)
    raise ValueError(f"there is no moment {at!r}; known: {known}")


def _described(work: store.OpenWork) -> str:
    facts = {"in flight": work.in_flight, "due": work.due, "to be retried": work.retries}
    parts = [f"{count} task(s) {what}" for what, count in facts.items() if count]
    return ", ".join([*parts, *([f"{work.workflows} workflow(s)"] if work.workflows else [])])
