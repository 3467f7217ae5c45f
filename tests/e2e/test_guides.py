"""The guides for platforms, functions and notebooks: their code runs, in a process that is really frozen and in a loop
that is really running."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from horsies.cli import main
from tests.e2e.page_support import ROOT, blocks, imported, ours, run, served
from tests.support import eventually_sync

pytestmark = [pytest.mark.e2e, pytest.mark.slow("runs the code of a documentation page")]

OTHERS = (
    "FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
# Each line of standard input is a call of one of the two functions, as a platform makes it.
PLATFORM = """

if __name__ == "__main__":
    import json
    import sys

    for line in sys.stdin:
        name, event = json.loads(line)
        print(json.dumps(globals()[name](event, None)), flush=True)
"""


class Function:
    """A process of a platform for functions, which is frozen between two calls."""

    def __init__(self, file: Path, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(file)],
            env={**os.environ, "DATABASE_URL": url, "POOLER_URL": url, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, name: str, event: dict[str, Any]) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, event]) + "\n")
        self.process.stdin.flush()
        return str(json.loads(self.process.stdout.readline())["task_id"])

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        frozen = psutil.Process(self.process.pid)
        eventually_sync(lambda: frozen.status() == psutil.STATUS_STOPPED, what="it is frozen")

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def a_function(directory: Path, url: str) -> Iterator[Function]:
    file = directory / "function.py"
    file.write_text("\n\n".join(ours("serverless")) + PLATFORM)
    function = Function(file, url)
    try:
        yield function
    finally:
        function.thaw()
        function.process.kill()
        function.process.communicate()


def test_x41_a_function_that_was_frozen_while_the_server_closed_its_connections_sends(
    database_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn, a_function(tmp_path, database_url) as function:
        conn.execute("CREATE TABLE orders (id text)")
        first = function.call("handler", {"id": "e1", "address": "ada@example.com"})
        for number in (2, 3):
            function.freeze()
            assert conn.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}".encode()).fetchall() != [], (
                "it had a connection"
            )
            if number == 3:  # otherwise the end may come while it sends
                eventually_sync(
                    lambda: conn.execute(f"SELECT 1 {OTHERS}".encode()).fetchall() == [], what="they are closed"
                )
            function.thaw()
            assert function.call("handler", {"id": f"e{number}", "address": "ada@example.com"}) != first
        again = function.call("handler", {"id": "e1", "address": "ada@example.com"})
        assert again == first, "platforms repeat calls"
        order = function.call("order", {"id": "o1", "address": "ada@example.com"})
        rows = conn.execute("SELECT id, status FROM horsies_tasks ORDER BY id").fetchall()
        assert len(rows) == 4 and (order, "PENDING") in rows and {status for _, status in rows} == {"PENDING"}
        assert conn.execute("SELECT id FROM orders").fetchall() == [("o1",)]


async def test_the_notebook_page_runs_inside_a_running_loop(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell blocks the loop while a plain call waits, as in a notebook; the worker is a real one."""
    [(title, source)] = [(title, code) for title, code in blocks("notebooks") if title]
    assert title == "analysis.py"
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.syspath_prepend(tmp_path)  # the directory of the notebook
    with served("analysis", source, database_url, tmp_path):
        cells = ours("notebooks")
        assert len(cells) == 5
        await run("notebooks", {}, cells)


async def test_the_app_and_the_scaling_of_the_paas_page_work(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a URL as platforms give it, and with what the command really prints."""
    monkeypatch.setenv("DATABASE_URL", database_url.replace("postgresql://", "postgres://", 1))
    app_code, scaling = ours("paas")
    file = tmp_path / "paas_shop.py"
    file.write_text(app_code)
    names: dict[str, Any] = {}
    await run("paas", names, [scaling])
    wanted = names["workers_wanted"]

    async def queues() -> str:
        capsys.readouterr()
        assert await asyncio.to_thread(main.run, ["queues", "--json", "--database-url", database_url]) == 0
        return capsys.readouterr().out

    with imported(file) as module:
        assert wanted(await queues(), now=3) == 2, "nothing is due"
        (await module.price.send_async(1)).unwrap()
        assert wanted(await queues(), now=3) == 3
        with psycopg.connect(database_url) as conn:
            conn.execute("UPDATE horsies_tasks SET enqueued_at = now() - interval '1 h'")
        assert wanted(await queues(), now=3) == 4
        assert wanted(await queues(), now=10) == 10
