"""A mixed fleet under load: workers of the old and of the new code serve one queue and are deployed back and forth, one
after another, while producers of both versions send. Then everything must have been run, once, and nothing failed.

Workers are real processes, started as an operator starts them and stopped by SIGTERM; each must end with 0.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg

from tests.support import eventually
from tests.worker_support import ROOT

HOME = Path(__file__).parent
VERSIONS = ("old", "new")
STEP_S = 3.0  # between two steps of a deploy
LAST_S = 60.0  # for what is left at the end


@dataclass
class Outcome:
    """What came of a run."""

    sent: Counter[str] = field(default_factory=Counter)
    deploys: int = 0  # of the whole fleet
    restarts: int = 0
    exits: Counter[int] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    claims: int = 0
    failures: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        total = sum(self.sent.values())
        found = [f"task {task}: {status} {code}: {why}" for task, status, code, why in self.failures]
        if self.statuses != Counter(COMPLETED=total):
            found.append(f"{total} tasks were sent, and came to {dict(self.statuses)}")
        if self.attempts != Counter(COMPLETED=total):
            found.append(f"{total} tasks were sent, with the attempts {dict(self.attempts)}")
        if set(self.exits) - {0}:
            found.append(f"workers ended with {dict(self.exits)}")
        return found

    def __str__(self) -> str:
        total = sum(self.sent.values())
        return (
            f"{total} tasks ({dict(self.sent)}), {self.deploys} deploys with {self.restarts} restarts, "
            f"{self.claims / max(1, total):.2f} claims for each task"
        )


class Fleet:
    """`run` returns what came of it."""

    def __init__(self, database_url: str, *, workers: int = 3, rate: float = 60.0, log: Path | None = None) -> None:
        self._url = database_url
        self._size = workers
        self._rate = rate
        self._log = log
        self._workers: list[subprocess.Popen[bytes]] = []
        self.outcome = Outcome()

    async def run(self, seconds: float, step_s: float = STEP_S, least_deploys: int = 1) -> Outcome:
        """Send for so long, and go on deploying until there were so many deploys."""
        os.environ["DATABASE_URL"] = self._url
        modules = {version: load_version(version) for version in VERSIONS}
        until = time.monotonic() + seconds
        try:
            self._workers = [self._start("old") for _ in range(self._size)]
            for process in self._workers:
                await eventually(partial(self._is_ready, process), 60, every=0.1, what="a worker that is ready")
            senders = [asyncio.create_task(self._send(modules[version], until)) for version in VERSIONS]
            await self._deploy_back_and_forth(until, step_s, least_deploys)
            await asyncio.gather(*senders)
            await self._finish()
        finally:
            for process in self._workers:
                process.kill()
                process.wait()
            for module in modules.values():
                await module.app.get_broker().close_async()
        return self.outcome

    async def _deploy_back_and_forth(self, until: float, step_s: float, least: int) -> None:
        for version in itertools.cycle(("new", "old")):
            for place in range(self._size):
                if time.monotonic() >= until and self.outcome.deploys >= least:
                    return
                fresh = self._start(version)  # first the new one, as a rolling deploy does
                await eventually(partial(self._is_ready, fresh), 60, every=0.1, what="a worker that is ready")
                await asyncio.sleep(step_s)
                await self._stop(self._workers[place])
                self._workers[place] = fresh
                self.outcome.restarts += 1
            self.outcome.deploys += 1

    async def _finish(self) -> None:
        """Both versions come to an end with what is left."""
        self._workers += [self._start(version) for version in VERSIONS]
        for process in self._workers:
            await eventually(partial(self._is_ready, process), 60, every=0.1, what="a worker that is ready")
        await eventually(self._is_done, LAST_S, every=0.2, what="the end of everything that was sent")
        for process in self._workers:
            await self._stop(process)
        self._workers = []
        await self._look()

    async def _send(self, module: ModuleType, until: float) -> None:
        """Tasks of all kinds that this version of a producer knows."""
        pause, version = 2 / self._rate, "new" if hasattr(module, "added") else "old"
        for n in itertools.count():
            if time.monotonic() >= until:
                return
            for name, sending in self._calls(module, n):
                sent = await sending
                assert sent.is_ok(), sent
                self.outcome.sent[f"{name} of {version}"] += 1
                await asyncio.sleep(pause)

    def _calls(self, module: ModuleType, n: int) -> list[tuple[str, Any]]:
        if hasattr(module, "added"):
            person = module.Person(first=f"p{n}")
            own = [("added", module.added.send_async(n)), ("greet", module.greet.send_async(person))]
        else:
            own = [("retired", module.retired.send_async(n)), ("greet", module.greet.send_async(f"p{n}"))]
        return [("common", module.common.send_async(n, 0.01 if n % 10 == 0 else 0.0)), *own]

    def _start(self, version: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "horsies", "worker", f"{HOME / version}.py:app", "--processes", "1"]
        env = {**os.environ, "DATABASE_URL": self._url, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        with (self._log or Path(os.devnull)).open("ab") as said:
            return subprocess.Popen(command, cwd=ROOT, env=env, stdout=said, stderr=said, start_new_session=True)

    async def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        self.outcome.exits[await asyncio.to_thread(process.wait, 60)] += 1

    async def _rows(self, query: str) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as conn:
            return await (await conn.execute(query.encode())).fetchall()

    async def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        tables = await self._rows("SELECT to_regclass('horsies_workers')")
        found = [] if tables == [(None,)] else await self._rows("SELECT pid FROM horsies_workers")
        return (process.pid,) in found

    async def _is_done(self) -> bool:
        return not await self._rows("SELECT 1 FROM horsies_tasks WHERE ended_at IS NULL LIMIT 1")

    async def _look(self) -> None:
        one = self.outcome
        one.statuses.update(dict(await self._rows("SELECT status, count(*) FROM horsies_tasks GROUP BY 1")))
        one.attempts.update(dict(await self._rows("SELECT outcome, count(*) FROM horsies_task_attempts GROUP BY 1")))
        [(one.claims,)] = await self._rows("SELECT COALESCE(sum(claim_seq), 0)::bigint FROM horsies_tasks")
        one.failures += await self._rows(
            "SELECT id, status, error_code, result FROM horsies_tasks WHERE status <> 'COMPLETED' LIMIT 5"
        )


def load_version(version: str) -> ModuleType:
    """The module of one version as a producer of its own."""
    spec = importlib.util.spec_from_file_location(f"shop_{version}", HOME / f"{version}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
