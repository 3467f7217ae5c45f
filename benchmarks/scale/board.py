"""A real `horsies web` in a process of its own, and who asks it for pages one after the other."""

from __future__ import annotations

import http.client
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

from benchmarks.process import APP, ROOT, own_seconds
from horsies.dev.program import Program

READY_S = 60.0
PATIENCE_S = 60.0
ADDRESS = re.compile(r"^dashboard: (http://\S+)$", re.MULTILINE)


class Answer(NamedTuple):
    """One answer: how long it took until its last byte was there, in milliseconds."""

    ms: float
    status: int
    body: bytes


class Board:
    """The dashboard, and one connection to it."""

    def __init__(self, url: str, process: Program) -> None:
        self.url = url
        self._process = psutil.Process(process.pid)
        self._conn = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)

    def get(self, path: str) -> Answer:
        begin = time.perf_counter()
        self._conn.request("GET", path, headers={"Accept": "text/html"})
        answer = self._conn.getresponse()
        body = answer.read()
        return Answer((time.perf_counter() - begin) * 1000, answer.status, body)

    def cpu_seconds(self) -> float:
        return own_seconds(self._process)

    def close(self) -> None:
        self._conn.close()


@contextmanager
def board(app: str = APP) -> Iterator[Board]:
    """The dashboard of the app, with actions, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="horsies-bench-") as folder:
        log = Path(folder) / "web.log"
        command = [sys.executable, "-m", "horsies.cli.main", "web", app, "--port", "0", "--enable-actions"]
        process = Program(command, cwd=ROOT, output=log)
        try:
            made = Board(_address(process, log), process)
            yield made
            made.close()
        finally:
            process.stop(PATIENCE_S)


def _address(process: Program, log: Path) -> str:
    deadline = time.monotonic() + READY_S
    while (found := ADDRESS.search(log.read_text(errors="replace"))) is None:
        if not process.is_running or time.monotonic() > deadline:
            raise SystemExit(f"the dashboard does not get ready: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.05)
    return found[1]
