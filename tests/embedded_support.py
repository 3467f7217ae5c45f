"""Processes that use an embedded server, and what can be seen of the server from outside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import psycopg
import pytest

from horsies.core.embedded import stop
from tests.support import eventually_sync

ROOT = Path(__file__).parents[1]
SETTINGS = {"fsync": "off", "max_connections": "20", "shared_buffers": "16MB"}
# The package's front door imports all of horsies, which is most of such a process's life; these need one part of it.
USER = f"""
import os, sys, types
sys.modules["horsies"] = types.ModuleType("horsies")
sys.modules["horsies"].__path__ = [{str(ROOT / "horsies")!r}]
from horsies.core.embedded import ensure_running
print(ensure_running(sys.argv[1], settings={{"fsync": "off"}}), flush=True)
"""
WAIT = USER + "sys.stdin.read()\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")


@contextlib.contextmanager
def place_for_a_server() -> Iterator[Path]:
    """Not pytest's own temporary directory: that one is closed to the user who runs the server for root."""
    directory = Path(tempfile.mkdtemp(prefix="hse-")).resolve()
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        for place in (directory, directory / "db"):
            if place.is_dir():
                stop(place)
        shutil.rmtree(directory)


@contextlib.contextmanager
def user_of(path: Path, code: str = WAIT, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the server until its standard input is closed; `.url` is what it was told."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def url_told_to(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> int:
    process.communicate()
    return process.returncode


def postmasters(path: Path) -> list[int]:
    data = (path / "data").resolve()
    found: dict[int, int] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "postgres" and str(data) in process.cmdline():
                found[process.pid] = process.ppid()
    # A backend that has just been forked looks like its parent until it has a title of its own.
    return [pid for pid, parent in found.items() if parent not in found]


def postmaster(path: Path) -> int:
    [pid] = postmasters(path)
    return pid


def keeper(path: Path) -> int:
    return int((path / "keeper.lock").read_text())


def is_used(path: Path) -> bool:
    """Whether somebody holds a share of the users' lock, which is what a keeper goes by."""
    with (path / "users.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: is_gone(pid))


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement)
        return cursor.fetchall() if cursor.description else []


def write_down(url: str) -> None:
    query(url, "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS answer")


def is_written(url: str) -> bool:
    return query(url, "SELECT answer FROM kept") == [(42,)]


def answers(url: str) -> bool:
    try:
        return query(url, "SELECT 1") == [(1,)]
    except psycopg.OperationalError:
        return False


@contextlib.contextmanager
def nobodys_python() -> Iterator[Callable[[str, Path | str], subprocess.CompletedProcess[str]]]:
    """Run code as the user `nobody`, with a Python of our version that this user can reach."""
    entry = pwd.getpwnam("nobody")
    account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    paths = os.pathsep.join([str(ROOT), *(each for each in sys.path if each.endswith("site-packages"))])
    environment = {"PATH": os.defpath, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(python: str, code: str, path: Path | str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [python, "-c", code, str(path)],
            capture_output=True,
            text=True,
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
            **account,
        )

    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        with contextlib.suppress(OSError):
            if run(python, "import horsies.core.embedded", Path("/")).returncode == 0:
                yield partial(run, python)
                return
    pytest.skip("no Python of this version that the user 'nobody' can reach")
