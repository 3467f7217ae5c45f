"""What tasks print and log comes out of the worker, at once and in full."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.services.children import ROOT

SUPERVISOR = """
import asyncio
from tests.services.children import start_child
from horsies.core.worker.launcher import Launcher

async def main():
    launcher = Launcher()
    await launcher.start()
    child = await start_child(launcher, loglevel="INFO")
    await child.ready()
    {what}
    await launcher.stop()

asyncio.run(main())
"""


def run_script(what: str) -> subprocess.CompletedProcess[bytes]:
    """In a process of its own, whose output the child inherits."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    script = SUPERVISOR.format(what=what)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60, check=True, env=environment
    )


def test_a_task_that_prints_megabytes_is_heard_in_full() -> None:
    ended = run_script("print(await child.answer('print_megabytes', 20))")
    lines = ended.stdout.splitlines()
    assert [len(line) for line in lines[:20]] == [1 << 20] * 20
    assert lines[20:] == [b"20"]
    assert len(ended.stderr.split()) == 20


def test_prints_and_logs_go_to_the_worker_s_output_at_once() -> None:
    """The child is killed right after: nothing may sit in a buffer of its."""
    ended = run_script("await child.answer('print_and_log'); child.process.signal(9); await child.code()")
    assert ended.stdout == b"printed by a task\n"
    assert b"logged by a task" in ended.stderr
    assert b"not to be seen" not in ended.stderr
