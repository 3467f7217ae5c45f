"""`horsies tui` in a real pseudo-terminal (M-80, M-97): the dashboard appears, keys work, and the terminal is left as
it was."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.e2e.cli_support import environment

pytestmark = pytest.mark.e2e

ESCAPES = re.compile(r"\x1b\[[0-9;:?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_].*?\x1b\\|\x1b.", re.S)
ENTERS, LEAVES, SHOWS_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
PATIENCE = 60.0
OTHER_ENDS = pytest.mark.slow("the same story with another signal")


class PseudoTerminal:
    """A terminal of 100 by 30 with a program in it."""

    def __init__(self, *words: str, **env: str) -> None:
        self._ours, self._theirs = os.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = self.settings()
        self.written = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "horsies", *words],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=environment(**env),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def settings(self) -> list[Any]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._theirs)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, *texts: str) -> None:
        """Read until all of these have been written since the last call."""
        found = ""
        deadline = time.monotonic() + PATIENCE
        while not all(text in plain(found) for text in texts):
            assert time.monotonic() < deadline, f"{texts} did not come:\n{plain(found)}"
            assert self.process.poll() is None, f"it ended:\n{plain(self.written)}"
            found += self._read(0.2)

    def end(self) -> int:
        """Its exit code, and everything that it has written is read."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self._read(0.1)
        while self._read(0.2):
            pass
        return self.process.returncode

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self, seconds: float) -> str:
        if not select.select([self._ours], [], [], seconds)[0]:
            return ""
        try:
            text = os.read(self._ours, 1 << 16).decode(errors="replace")
        except OSError:  # the other side is closed
            return ""
        self.written += text
        return text


def plain(text: str) -> str:
    return ESCAPES.sub("", text)


@contextlib.contextmanager
def terminal(*words: str, **env: str) -> Iterator[PseudoTerminal]:
    opened = PseudoTerminal(*words, **env)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def rows(database_url: str) -> str:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("INSERT INTO horsies_tasks (id, task_name, queue_name) VALUES ('t1', 'mail.send', 'letters')")
        conn.execute("INSERT INTO horsies_workers (worker_id, hostname) VALUES ('w1', 'host-of-w1')")
    return database_url


def is_restored(opened: PseudoTerminal) -> bool:
    """The main screen, a cursor that can be seen, and the settings of before."""
    last = {code: opened.written.rfind(code) for code in (ENTERS, LEAVES, SHOWS_CURSOR)}
    return opened.settings() == opened.before and last[LEAVES] > last[ENTERS] >= 0 and last[SHOWS_CURSOR] > 0


def test_m80_m97_the_dashboard_in_a_terminal(rows: str) -> None:
    with terminal("tui", "--database-url", rows) as opened:
        opened.until("[1 Dashboard]", "Capacity", "letters")
        opened.type("2")
        opened.until("[2 Workers]", "host-of-w1")
        opened.type("3")
        opened.until("[3 Tasks]", "(not claimed yet)")
        opened.type("\r")
        opened.until("mail.send")
        opened.type("?")
        opened.until("help", "refresh now")
        opened.type("\x1b")
        opened.until("(not claimed yet)")
        opened.type("y")
        opened.until("characters of JSON")
        assert "\x1b]52;c;" in opened.written, "what is copied goes to the terminal's clipboard"
        opened.type("q")
        assert opened.end() == 0 and is_restored(opened)


def test_m80_it_follows_the_size_of_the_terminal(rows: str) -> None:
    with terminal("tui", "--database-url", rows) as opened:
        opened.until("[1 Dashboard]", "Capacity")
        opened.resize(60, 12)
        opened.until("[1 Dash]")
        opened.type("q")
        assert opened.end() == 0


@pytest.mark.parametrize(
    "ending", ["ctrl-c", *(pytest.param(name, marks=OTHER_ENDS) for name in ("SIGTERM", "SIGHUP"))]
)
def test_m80_the_terminal_is_restored_however_it_ends(rows: str, ending: str) -> None:
    with terminal("tui", "--database-url", rows) as opened:
        opened.until("Capacity")
        if ending == "ctrl-c":
            opened.type("\x03")
        else:
            opened.process.send_signal(signal.Signals[ending])
        assert opened.end() == 0 and is_restored(opened)


def test_m12_m80_no_color_is_obeyed(rows: str) -> None:
    with terminal("tui", "--database-url", rows, NO_COLOR="1") as opened:
        opened.until("[1 Dashboard]", "letters", "Alerts")
        opened.type("q")
        assert opened.end() == 0
    colours = set(re.findall(r"\x1b\[([0-9;]*)m", opened.written))
    codes = {code for found in colours for code in found.split(";")} - {""}
    assert codes <= {"0", "1", "2", "3", "4", "7", "39", "49"}, "attributes, and the colours of the terminal itself"


def test_m80_log_lines_do_not_disturb_the_screen(rows: str) -> None:
    """The library warns when a connection is lost; that belongs to the notice, not across the screen."""
    with terminal("tui", "--database-url", rows) as opened:
        opened.until("letters")
        with psycopg.connect(rows, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        opened.type("4")
        opened.until("no workflows")
        opened.type("q")
        assert opened.end() == 0
    assert "WARNING" not in opened.written and "Traceback" not in opened.written
