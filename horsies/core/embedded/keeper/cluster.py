"""One PostgreSQL data directory: it is created with initdb, started, found again if it is already running, and stopped.

It is reached only through a socket in a directory that is private to the server's user. Directories that this user
cannot reach (below a parent such as /root) are placed elsewhere: the data in /var/lib/horsies, with a link to it, and
the socket in the directory for temporary files.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from functools import cached_property
from pathlib import Path

from .binaries import reachable_install
from .place import Failure, Place, sync_directory
from .postmaster import Postmaster, serves

ROOT_HOME = Path("/var/lib/horsies")
PORT = 5432
SOCKET_FILE = f".s.PGSQL.{PORT}"
SUPERUSER = "postgres"
LONGEST_SOCKET_PATH = 103  # bytes; 107 on Linux, 103 on macOS
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

    def adopt(self) -> Postmaster | None:
        """The server that a former keeper left running, once it is ready; None if there is none that can be used."""
        pid = self._postmaster_pid()
        if pid is None or not serves(pid, self.data):
            return None
        found = Postmaster(pid, self.data)
        while found.is_alive():
            if self._status() == "ready" and self._adopt_socket():
                self._place.log(f"adopted the running server {pid}")
                return found
            if self._status() != "starting":
                found.stop()
            time.sleep(0.02)
        return None

    def launch(self) -> Postmaster | None:
        """Start the server and wait until it accepts connections. None if it ended instead; the log says why."""
        self._socket = self._socket_directory()
        self._remove_stale_locks(self._socket)
        process = self._spawn(self._socket)
        while process.poll() is None:
            if self._postmaster_pid() == process.pid and self._status() == "ready":
                self._publish(self._socket)
                return Postmaster(process.pid, self.data, process)
            time.sleep(0.01)
        return None

    def is_well(self, server: Postmaster | None) -> bool:
        """Whether it runs and can be reached: a clean-up of temporary files may delete the socket."""
        return server is not None and server.is_alive() and self._socket is not None and is_socket(self._socket)

    def withdraw(self) -> None:
        """Delete the file that tells users where the server is."""
        (self._place.path / "server.json").unlink(missing_ok=True)
        if self._socket is not None and self._socket.parent != self._place.path:
            with contextlib.suppress(OSError):
                self._socket.rmdir()

    def _home(self) -> Path:
        """The directory for the data directory."""
        if self._place.account_may(self._place.path, os.X_OK):
            return self._place.path
        ROOT_HOME.mkdir(mode=0o711, parents=True, exist_ok=True)
        home = ROOT_HOME / f"{self._key()}-{secrets.token_hex(4)}"
        home.mkdir(mode=0o711)
        home.chmod(0o711)
        self._place.log(f"{self._place.path} cannot be used by the server's user; the data is in {home}")
        return home

    def _initialize(self, home: Path) -> None:
        fresh, data = home / "data.new", home / "data"
        shutil.rmtree(fresh, ignore_errors=True)  # an initialization that was cut short
        self._place.give_directory(fresh)
        options = [*INITDB_OPTIONS, *(["--no-sync"] if self._place.settings().get("fsync") == "off" else [])]
        done = subprocess.run(
            [str(self._install / "bin" / "initdb"), "-D", str(fresh), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment(),
            check=False,
            **self._place.as_account(),
        )
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise Failure(
                f"the database in {self._place.path} cannot be created", done.stdout.decode(errors="replace").strip()
            )
        fresh.rename(data)
        sync_directory(home)  # or a power cut could give us back `data.new`, which the next start deletes
        if home != self._place.path:
            (self._place.path / "data").unlink(missing_ok=True)  # a link to what was deleted
            (self._place.path / "data").symlink_to(data)
            sync_directory(self._place.path)

    def _socket_directory(self) -> Path:
        """Beside the data if that fits a socket address and a URL; otherwise in the directory for temporary files."""
        inside = self._place.path / "socket"
        fits = len(os.fsencode(inside / SOCKET_FILE)) <= LONGEST_SOCKET_PATH and not re.search(
            r"""[,"'\\\x00-\x1f]""", str(inside)
        )
        if fits and self._place.account_may(self._place.path, os.X_OK):
            self._place.give_directory(inside)
            return inside
        for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
            short = parent / f"horsies-{self._place.account[0]}-{self._key()}"
            if len(os.fsencode(short / SOCKET_FILE)) <= LONGEST_SOCKET_PATH and self._place.account_may(
                parent, os.X_OK
            ):
                break
        self._place.give_directory(short)
        status = short.lstat()
        if short.is_symlink() or status.st_uid != self._place.account[0] or status.st_mode & 0o077:
            raise Failure(f"{short}, the directory for the server's socket, belongs to another user")
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
        # Its output is ours, which is the log.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, cwd="/", env=environment(), **self._place.as_account()
        )

    def _publish(self, socket: Path) -> None:
        self._place.write_json("server.json", {"host": str(socket), "port": PORT, "user": SUPERUSER})

    def _adopt_socket(self) -> bool:
        """Keep using the socket of the running server, wherever it is; False if it was deleted."""
        with contextlib.suppress(IndexError):
            socket = Path(self._pid_file()[4].strip())
            if is_socket(socket):
                self._socket = socket
                self._publish(socket)
                return True
        return False

    def _remove_stale_locks(self, socket: Path) -> None:
        """Remove stale lock files. No server of ours runs, so these files are old, and PostgreSQL might take the pid of
        another process in them for a running server."""
        for file in (self.data / "postmaster.pid", socket / SOCKET_FILE, socket / f"{SOCKET_FILE}.lock"):
            file.unlink(missing_ok=True)

    def _postmaster_pid(self) -> int | None:
        with contextlib.suppress(ValueError, IndexError):
            return int(self._pid_file()[0])
        return None

    def _status(self) -> str:
        with contextlib.suppress(IndexError):
            return self._pid_file()[7].strip()
        return ""

    def _pid_file(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self.data / "postmaster.pid").read_text(errors="replace").splitlines()
        return []

    def _key(self) -> str:
        return hashlib.sha256(os.fsencode(self._place.path)).hexdigest()[:12]


def is_socket(directory: Path) -> bool:
    return (directory / SOCKET_FILE).is_socket()


def environment() -> dict[str, str]:
    """A minimal environment: the server needs nothing from the user's environment, which may contain secrets."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}
