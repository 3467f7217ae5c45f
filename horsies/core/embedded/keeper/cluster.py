"""One PostgreSQL data directory and its server: it is created with initdb, started and stopped, also if a killed keeper
has left it running. It is reached only through a socket in a directory that is private to the server's user.
Directories that this user cannot reach (below a parent such as /root) are placed elsewhere: the data in
/var/lib/horsies, with a link to it, and the socket there too. A socket of an ordinary user whose path is too long is in
the directory for temporary files.

A pid in a file proves nothing, because another process may have it after a reboot. So a process counts as the server of
a directory only if it works in that directory.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cached_property
from pathlib import Path

from . import safety
from .place import Place, home_of_root, reachable_install, run_as, sync_directory
from .safety import Failure

ROOT_HOME = Path("/var/lib/horsies")
PROC = Path("/proc")
PORT = 5432
SOCKET_FILE = f".s.PGSQL.{PORT}"
SUPERUSER = "postgres"
LONGEST_SOCKET_PATH = 103  # bytes; 107 on Linux, 103 on macOS
STEPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))

SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}

INITDB_OPTIONS = (
    f"--username={SUPERUSER}",
    "--auth-local=trust",
    "--auth-host=reject",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",  # the same order of text on each system
    "--no-instructions",
)


class Postmaster:
    """One running server: our own child, or one that a killed keeper has left behind."""

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


class Cluster:
    def __init__(self, place: Place, install: Path) -> None:
        self._place = place
        self._original = install
        self._socket: Path | None = None

    @property
    def data(self) -> Path:
        return (self._place.path / "data").resolve()

    @cached_property
    def _install(self) -> Path:
        return reachable_install(self._original, self._place, ROOT_HOME)

    def prepare(self) -> None:
        """Create the data directory if it does not exist."""
        if not (self.data / "PG_VERSION").exists():
            self._initialize(self._home())
        self._require_own_data()

    def end_left_server(self) -> None:
        """Stop the server that a killed keeper has left running, or whose socket was deleted, at once: the next start
        recovers from the WAL."""
        pid, _ = self._postmaster()
        if pid is not None and serves(pid, self.data):
            self._place.log(f"stopping the server {pid}, which nobody looks after")
            Postmaster(pid, self.data).stop(signal.SIGQUIT)

    def launch(self) -> Postmaster | None:
        """Start the server and wait until it accepts connections. None if it ended instead; the log says why."""
        self._socket = self._socket_directory()
        # No server of ours runs, so these files are old, and PostgreSQL might take the pid of another process in them
        # for a running server.
        for stale in (self.data / "postmaster.pid", self._socket / SOCKET_FILE, self._socket / f"{SOCKET_FILE}.lock"):
            stale.unlink(missing_ok=True)
        process = self._spawn(self._socket)
        while process.poll() is None:
            if self._postmaster() == (process.pid, "ready"):
                where = {"host": str(self._socket), "port": PORT, "user": SUPERUSER}
                self._place.write_json("server.json", where)
                return Postmaster(process.pid, self.data, process)
            time.sleep(0.01)
        return None

    def is_well(self, server: Postmaster | None) -> bool:
        """Whether it runs and can be reached: a clean-up of temporary files may delete the socket."""
        socket = self._socket
        return server is not None and server.is_alive() and socket is not None and (socket / SOCKET_FILE).is_socket()

    def withdraw(self) -> None:
        """Delete the file that tells users where the server is."""
        self._place.remove("server.json")
        if self._socket is not None and self._socket.parent != self._place.path:
            with contextlib.suppress(OSError):
                self._socket.rmdir()

    def _home(self) -> Path:
        """The directory for the data directory."""
        if self._place.account_may(self._place.path, os.X_OK):
            return self._place.path
        home = home_of_root(home_of_root(ROOT_HOME) / f"{self._key()}-{secrets.token_hex(4)}")
        self._place.log(f"{self._place.path} cannot be used by the server's user; the data is in {home}")
        return home

    def _require_own_data(self) -> None:
        """Under root, refuse data that an ordinary user has put here, or that is where others can exchange it."""
        if safety.is_root():
            owner = safety.real_path(self._place.path / "data").lstat().st_uid
            if owner != self._place.account[0]:
                raise Failure(
                    f"{self._place.path / 'data'} belongs to {safety.user_name(owner)}, not to the user of the server",
                    way_out="run this as that user, in a directory of that user; or remove the data",
                )

    def _initialize(self, home: Path) -> None:
        fresh, data = home / "data.new", home / "data"
        shutil.rmtree(fresh, ignore_errors=True)  # left by an initialization that was interrupted
        account, named = self._place.account, self._place.named_account
        # While initdb runs as a user whose name others may have too, only its group gets through to the data.
        owner = (0, account[1]) if safety.is_root() else account
        safety.give_directory(fresh, owner, mode=0o710)
        safety.give_directory(fresh / "data", named)
        self._run_initdb(fresh)
        if safety.is_root():
            safety.give_tree(fresh / "data", named[0], account)
        if data.is_symlink():
            data.unlink()  # it led to a directory that was deleted
        (fresh / "data").rename(data)
        fresh.rmdir()
        sync_directory(home)
        if home != self._place.path:
            self._place.link("data", data)

    def _run_initdb(self, fresh: Path) -> None:
        options = [*INITDB_OPTIONS, *(["--no-sync"] if self._place.settings().get("fsync") == "off" else [])]
        done = subprocess.run(
            [str(self._install / "bin" / "initdb"), "-D", str(fresh / "data"), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment(),
            check=False,
            **run_as(self._place.named_account),
        )
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise Failure(
                f"the database in {self._place.path} cannot be created", done.stdout.decode(errors="replace").strip()
            )

    def _socket_directory(self) -> Path:
        """Beside the data if that fits a socket address and a URL; otherwise elsewhere, where paths are short."""
        inside = self._place.path / "socket"
        fits = len(os.fsencode(inside / SOCKET_FILE)) <= LONGEST_SOCKET_PATH and not re.search(
            r"""[,"'\\\x00-\x1f]""", str(inside)
        )
        if not fits or not self._place.account_may(self._place.path, os.X_OK):
            inside = self._short_socket_directory()
        safety.give_directory(inside, self._place.account)
        return inside

    def _short_socket_directory(self) -> Path:
        if safety.is_root():
            return home_of_root(ROOT_HOME) / f"socket-{self._key()}"
        for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
            short = parent / f"horsies-{self._place.account[0]}-{self._key()}"
            if len(os.fsencode(short / SOCKET_FILE)) <= LONGEST_SOCKET_PATH:
                break
        return short

    def _spawn(self, socket: Path) -> subprocess.Popen[bytes]:
        settings = {
            **SETTINGS,
            **self._place.settings(),
            "listen_addresses": "",
            "unix_socket_directories": f'"{socket}"',
            "unix_socket_permissions": "0700",
            "port": str(PORT),
        }
        command = [str(self._install / "bin" / "postgres"), "-D", str(self.data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        # The server writes to our output, which is the log.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, cwd="/", env=environment(), **run_as(self._place.account)
        )

    def _postmaster(self) -> tuple[int | None, str]:
        """The pid and the status of the server, as far as its file says them."""
        pid, status = None, ""
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            lines = safety.read_text(self.data / "postmaster.pid").splitlines()
            pid = int(lines[0])
            status = lines[7].strip()
        return pid, status

    def _key(self) -> str:
        return hashlib.sha256(os.fsencode(self._place.path)).hexdigest()[:12]


def serves(pid: int, data: Path) -> bool:
    """Whether this process is a PostgreSQL server of this data directory. A zombie is not."""
    if not PROC.joinpath("self").exists():  # then its command line names the directory
        shown = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return f"postgres -D {data} " in shown.stdout
    try:
        name = (PROC / str(pid) / "comm").read_text().strip()
        return name.startswith("postgres") and (PROC / str(pid) / "cwd").readlink() == data
    except OSError:
        return False


def kill_leftovers(data: Path, user: int) -> None:
    """End processes that a killed server left behind. We are the only keeper, so nobody else can have started them.
    Root could kill anything here. So a process must not only work in the directory; it must also run as the user of the
    server, who is never root, and must have lost its parent."""
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == user and serves(int(entry.name), data):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if not serves(int(parent), data):
                    os.kill(int(entry.name), signal.SIGKILL)


def environment() -> dict[str, str]:
    """A minimal environment: the server needs nothing from the user's environment, which may contain secrets."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}
