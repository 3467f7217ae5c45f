"""Processes of PostgreSQL: whether one is alive and ours, and how to stop it. A pid in a file proves nothing, because
another process may have it after a reboot. So a process counts as the server of a directory only if it works in that
directory.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

PROC = Path("/proc")
STEPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))


class Postmaster:
    """One running server: our own child, or one that a former keeper left behind."""

    def __init__(self, pid: int, data: Path, process: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._data = data
        self._process = process

    def is_alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return serves(self.pid, self._data)

    def stop(self, first: signal.Signals = signal.SIGINT) -> None:
        """Fast shutdown (SIGINT), then immediate (SIGQUIT), then SIGKILL: the next start recovers from the WAL."""
        skipped = [sig for sig, _ in STEPS].index(first)
        for sig, patience in STEPS[skipped:]:
            if not self.is_alive():
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)
            deadline = time.monotonic() + patience
            while self.is_alive() and time.monotonic() < deadline:
                time.sleep(0.02)


def serves(pid: int, data: Path) -> bool:
    """Whether this process is a PostgreSQL server of this data directory. A zombie is not."""
    if not PROC.joinpath("self").exists():
        return _says_so(pid, data)
    try:
        name = (PROC / str(pid) / "comm").read_text().strip()
        return name.startswith("postgres") and (PROC / str(pid) / "cwd").readlink() == data
    except OSError:
        return False


def _says_so(pid: int, data: Path) -> bool:
    """Without /proc: whether its command line names the directory."""
    shown = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return f"postgres -D {data} " in shown.stdout


def kill_leftovers(data: Path, user: int) -> None:
    """End processes that a killed server left behind. We are the only keeper, so nobody else can have started them.
    Root could kill anything here. So a process must not only work in the directory; it must also run as the server's
    user, which is never root, and must have lost its parent."""
    if user == 0:
        return
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == user and serves(int(entry.name), data) and not _has_server(entry, data):
                os.kill(int(entry.name), signal.SIGKILL)


def _has_server(entry: Path, data: Path) -> bool:
    """Whether the parent of this process is a server of the same directory."""
    parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
    return serves(int(parent), data)
