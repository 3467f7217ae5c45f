"""The worker processes of a round, each in its place: started as an operator starts them, started again when they have
ended, and signalled. Only processes that we have started are signalled, and only as long as they are the same ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from tests.chaos.history import Worker
from tests.chaos.kinds import VARIABLE
from tests.chaos.plan import Plan
from tests.chaos.proxy import Proxy
from tests.worker_support import ROOT

PROCESSES = 2
LOOK_EVERY_S = 0.05


@dataclass
class Family:
    """The processes of a worker: its supervisor, its fork server, its children."""

    supervisor: psutil.Process
    fork_servers: list[psutil.Process] = field(default_factory=list)
    children: list[psutil.Process] = field(default_factory=list)

    @property
    def all(self) -> list[psutil.Process]:
        return [self.supervisor, *self.fork_servers, *self.children]


class Place:
    """Where one worker runs, and after its end the next."""

    def __init__(self, number: int, plan: Plan, proxy: Proxy, home: Path, direct_url: str) -> None:
        self.number = number
        self.proxy = proxy
        self.lives: list[Worker] = []
        self._plan = plan
        self._home = home
        self._direct_url = direct_url
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def pid(self) -> int:
        """Of the supervisor; 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def log(self) -> Path:
        return self._home / f"worker-{self.number}.log"

    def start(self) -> None:
        profile = self._plan.profile(self.number, self._starts)
        self._starts += 1
        told = {"journal": str(self._home / "journal"), "direct": self._direct_url, "settings": profile.settings()}
        command = [sys.executable, "-m", "horsies.cli.main", "worker", "tests.chaos.app:app"]
        command += ["--processes", str(PROCESSES), "--shutdown-grace", "4s", *profile.options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": self.proxy.url, "NO_COLOR": "1", VARIABLE: json.dumps(told)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.lives.append(Worker(self.number, self._process.pid, profile.name, time.time()))

    async def keep(self) -> None:
        """Start a worker, and another one after each, for ever."""
        while True:
            if self._process is None:
                await asyncio.sleep(self._plan.pause(self.number, self._starts))
                self.start()
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Notice that it has ended. Until then it is a zombie, which counts as gone."""
        if self._process is not None and (code := self._process.poll()) is not None:
            ready = self._has_said_ready(self._process.pid)
            self.lives[-1] = replace(self.lives[-1], end=time.time(), returncode=code, was_ready=ready)
            self._process = None

    def _has_said_ready(self, pid: int) -> bool:
        lines = self.log.read_text(errors="replace").splitlines()
        return any("worker ready" in line and line.endswith(f"pid={pid}") for line in lines)

    def family(self) -> Family | None:
        """Those who live now; None if there is no worker."""
        try:
            supervisor = psutil.Process(self.pid) if self.pid else None
            if supervisor is None or supervisor.status() == psutil.STATUS_ZOMBIE:
                return None
            family = Family(supervisor)
            for process in supervisor.children(recursive=True):
                is_child = process.ppid() != supervisor.pid
                (family.children if is_child else family.fork_servers).append(process)
            return family
        except psutil.NoSuchProcess:
            return None

    def note_orphans(self, pid: int, seconds: float) -> None:
        for place, life in enumerate(self.lives):
            if life.pid == pid:
                self.lives[place] = replace(life, orphans_s=seconds)

    async def end(self, patience: float) -> None:
        """Tell it to stop; kill it if it does not."""
        if self._process is None:
            return
        family = self.family()
        signal_all([family.supervisor] if family else [], signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self._process is not None and time.monotonic() < deadline:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)
        if self._process is not None and (family := self.family()) is not None:
            signal_all([family.supervisor], signal.SIGUSR2)  # it writes down where it hangs
            await asyncio.sleep(1.0)
            signal_all(family.all, signal.SIGKILL)

    def kill(self) -> None:
        """For good, whatever it is doing."""
        if (family := self.family()) is not None:
            signal_all(family.all, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self.look()


def signal_all(processes: Iterable[psutil.Process], sig: signal.Signals) -> frozenset[int]:
    """psutil looks whether it is still the same process. The pids that were there."""
    reached = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(sig)
            reached.add(process.pid)
    return frozenset(reached)


def are_gone(processes: Iterable[psutil.Process]) -> bool:
    return not any(_lives(process) for process in processes)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def leftovers(home: Path) -> list[psutil.Process]:
    """Processes of this round's workers that are still there, whoever their parent is now."""
    mark = json.dumps(str(home / "journal"))
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if mark in process.environ().get(VARIABLE, "") and _lives(process):
                found.append(process)
    return found
