"""Real workers for tests: in this process (`running_worker`) or as a process of their own (`WorkerProcess`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from psycopg.rows import dict_row

from horsies import Horsies
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.launcher import Launcher
from horsies.core.worker.service import Worker
from tests import warm_start
from tests.support import PATIENCE, eventually

ROOT = Path(__file__).resolve().parent.parent
ONE_AT_A_TIME = {"processes": 1, "concurrency": 1}
BASIC = f"{ROOT / 'tests' / 'apps' / 'basic.py'}:app"


@contextlib.asynccontextmanager
async def running_worker(app: Horsies, **settings: Any) -> AsyncIterator[Worker]:
    """A worker in this event loop, with real children; stopped, and seen to end well, afterwards. It has one child that
    runs one task at a time, unless the settings say otherwise: tests must not depend on the machine."""
    with warm_launcher() as launcher:
        worker = make_worker(app, launcher, **settings)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.request_stop()
            try:
                async with asyncio.timeout(PATIENCE):
                    await running
            except TimeoutError:
                worker.request_stop()
                await running
                raise


def make_worker(app: Horsies, launcher: Launcher | None = None, **settings: Any) -> Worker:
    """The same, to be run by the test; without a launcher of the test, it must be run."""
    config = WorkerConfig(**{"app_locator": BASIC, "imports": (), **ONE_AT_A_TIME, **settings})
    return Worker(app, config, launcher=launcher or Launcher(warm_start.fork_server()))


@contextlib.contextmanager
def warm_launcher() -> Iterator[Launcher]:
    forked = warm_start.fork_server()
    try:
        yield Launcher(forked)
    finally:
        if forked is not None:
            forked.close()


class SharedWorker:
    """A worker of this process in a thread, for tests that have event loops of their own."""

    def __init__(self, app: Horsies, **settings: Any) -> None:
        self._app, self._settings = app, settings
        self._thread = ThreadPoolExecutor(1)
        self._ready = Future[str]()
        self._stop = threading.Event()

    @property
    def worker_id(self) -> str:
        return self._ready.result()

    @property
    def is_running(self) -> bool:
        return not self._done.done()

    def start(self) -> None:
        """Return when it serves."""
        self._done = self._thread.submit(asyncio.run, self._run())
        wait([self._ready, self._done], timeout=60, return_when=FIRST_COMPLETED)
        if self._done.done():
            self._done.result()

    def stop(self) -> None:
        self._stop.set()
        self._done.result()
        self._thread.shutdown()

    async def _run(self) -> None:
        rows = Rows(self._app.config.broker.database_url.get_secret_value())
        async with running_worker(self._app, **self._settings) as worker:
            await eventually(lambda: rows.all("SELECT FROM horsies_worker_states"), what="the worker serves")
            self._ready.set_result(worker.worker_id)
            await asyncio.to_thread(self._stop.wait)


class WorkerProcess:
    """`horsies worker` as an operator starts it; with one child that runs one task at a time, unless the options say
    otherwise."""

    def __init__(
        self, database_url: str, *options: str, locator: str = BASIC, env: dict[str, str] | None = None
    ) -> None:
        self.process = warm_start.start(
            ("worker", locator, *_unless_given(options), *options),
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": database_url, "NO_COLOR": "1", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout:
            if error is not None and not self.process.stdout.closed:
                os.set_blocking(self.process.stdout.fileno(), False)  # somebody may still hold the other end
                print(self.process.stdout.read())  # pytest shows it with the failure
            self.process.stdout.close()

    def stop(self, sig: signal.Signals = signal.SIGTERM, timeout: float = 30) -> tuple[int, str]:
        """Signal it and wait for its end; the exit code and all it said."""
        self.process.send_signal(sig)
        return self.wait(timeout)

    def wait(self, timeout: float = 30) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, output


def _unless_given(options: tuple[str, ...]) -> list[str]:
    names = [f"--{name}" for name in ONE_AT_A_TIME]
    return [part for name in names if name not in options for part in (name, "1")]


class Rows:
    """A view into the test's database, for assertions."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def all(self, query: str, *params: Any) -> list[dict[str, Any]]:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True, row_factory=dict_row) as conn:
            return await (await conn.execute(query.encode(), params)).fetchall()

    async def task(self, task_id: str) -> dict[str, Any]:
        (row,) = await self.all("SELECT * FROM horsies_tasks WHERE id = %s", task_id)
        return row

    async def status(self, task_id: str) -> str:
        return str((await self.task(task_id))["status"])

    async def attempts(self, task_id: str) -> list[dict[str, Any]]:
        return await self.all("SELECT * FROM horsies_task_attempts WHERE task_id = %s ORDER BY attempt", task_id)

    async def until(self, task_id: str, *statuses: str, timeout: float = 20) -> dict[str, Any]:
        """Wait until the task has one of these statuses."""

        async def reached() -> dict[str, Any] | None:
            row = await self.task(task_id)
            return row if row["status"] in statuses else None

        found = await eventually(reached, timeout, what=f"task {task_id} in {statuses}")
        assert found is not None
        return found
