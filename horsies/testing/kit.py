"""`app.testing`: what a test of the user's own code can do with an app (X-11 to X-14). Each part is a module of its
own; this one is their face. Methods that need a database use that of the app, which the fixture `horsies_app` replaces
by one of the test's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from horsies.core.store import testing as store
from horsies.core.tasks.definition import TaskDefinition
from horsies.core.types import run_sync
from horsies.testing import inline
from horsies.testing.crash import SETTLE_S, Crash, CrashReport, Scenario, every_crash
from horsies.testing.drain import Drain, DrainedTask, Until
from horsies.testing.moments import Moment
from horsies.testing.running import Ways
from horsies.testing.sent import SentRow, SentTasks
from horsies.testing.travel import Journey
from horsies.testing.worker_process import SpawnedWorker

if TYPE_CHECKING:
    from horsies.core.app import Horsies


class AppTesting:
    """The testing kit of one app."""

    def __init__(self, app: Horsies) -> None:
        self._app = app
        self._inline: inline.InlineBroker | None = None
        self._journey = Journey(app)
        self.ways = Ways()

    @contextmanager
    def inline(self) -> Iterator[None]:
        """Inside this block there is no database: a send runs the task at once, in this process, and its handle has the
        result. Retries do not wait, and neither does what is scheduled for later."""
        before, self._inline = self._inline, inline.InlineBroker(self._app.config.broker, self._app)
        try:
            with self._app.replaced(broker=self._inline, sender=inline.InlineSender(self._inline, self.ways)):
                yield
        finally:
            self._inline = before

    @contextmanager
    def on_database(self, url: str) -> Iterator[None]:
        """Inside this block the app uses this database instead of its own. The fixture `horsies_app` does so."""
        broker = self._app.config.broker.elsewhere(url)
        with self._app.replaced(config=self._app.config.model_copy(update={"broker": broker})):
            yield

    @property
    def sent(self) -> SentTasks:
        """What was sent: inside `inline()` since its beginning, otherwise what is in the database."""
        return SentTasks(self._rows if self._inline is None else self._inline.rows, self._app.tasks)

    async def drain_async(
        self, *, until: Until | None = None, max_tasks: int | None = None, raise_on_failure: bool = False
    ) -> list[DrainedTask]:
        """Run what is due in this process, workflows included, until nothing is due any more; what ended, in order.

        `until` ends it earlier: with the end of a task of this name, of this handle or workflow, or when a function of
        what has ended so far says so; `DrainIncomplete` if that never comes. `max_tasks` is the number of attempts to
        run. With `raise_on_failure`, a task that fails raises `TaskFailed`, and what its function raised is the cause.
        """
        self._refuse_inline("drain")
        return await Drain(self._app, until, max_tasks, raise_on_failure).run()

    drain = run_sync(drain_async)

    async def travel_async(self, duration: timedelta) -> None:
        """Let this much time pass for everything that waits: scheduled tasks, retries, deadlines. The schedules of the
        app send what is due by then. Nothing runs yet; `drain()` or a worker does that."""
        self._refuse_inline("travel")
        await self._journey.travel(duration)

    travel = run_sync(travel_async)

    def crash(
        self, task: TaskDefinition[Any, Any] | None = None, *, at: Moment | str, settle_s: float = SETTLE_S
    ) -> Crash:
        """A real worker that dies at this moment of the first such task, as a context manager: `with
        app.testing.crash(charge, at="returned"): charge.send(1)`. Leaving the block waits until another worker has
        recovered what was left, and everything has ended."""
        self._refuse_inline("crash")
        return Crash(self._app, task, at, settle_s)

    def every_crash(
        self,
        scenario: Scenario,
        check: Scenario | None = None,
        *,
        task: TaskDefinition[Any, Any] | None = None,
        setup: Scenario | None = None,
        moments: Iterable[Moment | str] | None = None,
        settle_s: float = SETTLE_S,
    ) -> CrashReport:
        """Run the scenario once for each moment, in a worker that dies there, and `check` after each what must be true
        whatever dies (it raises, or returns False). `setup` is called before each. `InvariantBroken` names the moments
        after which it was not true."""
        self._refuse_inline("every_crash")
        return every_crash(self._app, scenario, check, task=task, setup=setup, moments=moments, settle_s=settle_s)

    def worker(self, *, processes: int = 1, with_scheduler: bool = False) -> SpawnedWorker:
        """A real worker process on the database of the app, as a context manager."""
        self._refuse_inline("worker")
        return SpawnedWorker(self._app, processes=processes, with_scheduler=with_scheduler)

    def _rows(self) -> Sequence[SentRow]:
        broker = self._app.get_broker()

        async def read() -> Sequence[tuple[Any, ...]]:
            async with broker.hub.connection() as conn:
                return await store.sent(conn)

        return [SentRow(*row) for row in broker.bridge.run(read)]

    def _refuse_inline(self, what: str) -> None:
        if self._inline is not None:
            raise RuntimeError(f"app.testing.{what} needs a database, and inside app.testing.inline() there is none")
