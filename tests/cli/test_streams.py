"""Where the output goes: a pipe that nobody reads, a terminal that is narrow, a screen that is kept up to date."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from datetime import timedelta
from pathlib import Path

import pytest

from horsies.cli.output import watch_until_interrupted
from horsies.core.errors import HorsiesError
from horsies.core.store.retention import BATCH
from tests import warm_start
from tests.cli.support import Terminal
from tests.e2e.cli_support import environment
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

HORSIES = [sys.executable, "-m", "horsies"]
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def many(terminal: Terminal, count: int = 400) -> None:
    terminal.execute(
        "INSERT INTO horsies_tasks (id, task_name, queue_name)"
        " SELECT lpad(n::text, 36, '0'), 'a_task_with_a_long_name', 'a_queue_with_a_long_name'"
        " FROM generate_series(1, %s) AS n",
        [count],
    )


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_a_reader_who_leaves_is_not_answered_with_a_traceback(
    terminal: Terminal, tmp_path: Path, options: tuple[str, ...]
) -> None:
    many(terminal)
    command = [*HORSIES, "tasks", "--limit", "400", *options, "--database-url", terminal.url]
    reading, writing = os.pipe()
    os.close(reading)  # the reader is gone before the first line
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("database: "), done.stderr


class Screen:
    """A terminal of some width, and what has been written on it."""

    def __init__(self, *words: str, columns: int, cwd: Path, is_heard: bool = False, **env: str) -> None:
        self.written = ""
        mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._mine = mine
        self._process = warm_start.start(
            words,
            cwd=cwd,
            env=environment(**env),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs if is_heard else subprocess.DEVNULL,
        )
        os.close(theirs)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._mine)

    def shows(self, text: str) -> bool:
        while select.select([self._mine], [], [], 0)[0]:
            try:
                self.written += os.read(self._mine, 65536).decode(errors="replace")
            except OSError:  # they have closed it
                break
        return text in self.plain

    @property
    def plain(self) -> str:
        return CODES.sub("", self.written)

    def end(self, sig: signal.Signals | None = None) -> int:
        if sig is not None:
            self._process.send_signal(sig)
        code = (
            eventually_sync(lambda: self.shows("\0") or self._process.poll() is not None, 30)
            and self._process.returncode
        )
        self.shows("")
        return int(code)


def test_m12_a_narrow_terminal_gets_whole_cells_in_colour(terminal: Terminal, tmp_path: Path) -> None:
    many(terminal, 2)
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        command = ("tasks", "--wide", "--database-url", terminal.url)
        with Screen(*command, columns=40, cwd=tmp_path, **env) as screen:
            assert screen.end() == 0
        assert f"{2:036}" in screen.plain and "a_queue_with_a_long_name" in screen.plain, "nothing is cut or broken"
        assert ("\x1b[" in screen.written) is coloured


def test_m11_a_watched_list_follows_the_database_until_it_is_interrupted(terminal: Terminal, tmp_path: Path) -> None:
    words = ("tasks", "--watch", "--every", "0.1", "--database-url", terminal.url)
    with Screen(*words, columns=50, cwd=tmp_path) as screen:
        eventually_sync(lambda: screen.shows("no task matches"), 30)
        many(terminal, 3)
        eventually_sync(lambda: screen.shows("1 to 3 of 3 tasks"), 30)
        assert screen.end(signal.SIGINT) == 0
    lines = {line for line in screen.plain.splitlines() if f"{3:036}" in line}
    assert lines and all(len(line.rstrip()) <= 50 for line in lines)
    assert all(f"{3:036}  PENDING" in line for line in lines), "cut at the edge, not squeezed"
    assert "\x1b[?1049l" in screen.written, "the screen is as it was"


def test_m11_without_a_terminal_a_watched_list_is_written_again_and_again(terminal: Terminal, tmp_path: Path) -> None:
    command = [*HORSIES, "queues", "--watch", "--every", "0.1", "--database-url", terminal.url]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None and watching.stderr is not None
        times = 0
        while times < 3:
            line = watching.stdout.readline()
            assert line, watching.stderr.read()
            times += line.startswith("default ")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
        assert "Traceback" not in watching.stderr.read()


def test_a_database_that_goes_away_is_said_and_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[str | BaseException] = ["one", HorsiesError("it is away", notes=["why"]), "two", KeyboardInterrupt()]

    def frame() -> str:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert watch_until_interrupted(frame, timedelta(0)) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if ":" not in line] == ["one", "it is away", "why", "two"]


def test_m11_a_purge_that_is_interrupted_says_how_far_it_came(terminal: Terminal, tmp_path: Path) -> None:
    rows = 30_000
    terminal.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, completed_at)"
        " SELECT n::text, 't', 'COMPLETED', now() - interval '2 h' FROM generate_series(1, %s) AS n",
        [rows],
    )
    command = [*HORSIES, "purge", "--older-than", "1h", "--yes", "--database-url", terminal.url]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as purging:
        eventually_sync(lambda: terminal.count() < rows, 60, what="a first batch")
        purging.send_signal(signal.SIGINT)
        out, err = purging.communicate(timeout=30)
    told, left = int(out.split()[1]), terminal.count()
    assert purging.returncode == 1 and out == f"deleted {told} tasks\n"
    # The answer to the last commit may be what was interrupted.
    assert left > 0 and rows - left - BATCH <= told <= rows - left
    assert "incomplete" in err and "Traceback" not in err
