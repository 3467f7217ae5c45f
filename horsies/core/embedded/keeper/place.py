"""The directory of an embedded server, and the system user that the server runs as. Under root this is the owner of the
directory, or `nobody`, because PostgreSQL refuses to run as root. This module handles only files and permissions;
`cluster.py` knows PostgreSQL.
"""

import contextlib
import json
import os
import pwd
import subprocess
import time
from functools import cached_property
from pathlib import Path
from typing import Any

LOG_LIMIT = 10 * 1024 * 1024
_TESTS = {os.R_OK: "-r", os.W_OK: "-w", os.X_OK: "-x"}


class Failure(Exception):
    """The server cannot be started; `detail` is the message of PostgreSQL or the system."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class Place:
    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def account(self) -> tuple[int, int]:
        """User and group that the server runs as."""
        if os.geteuid() != 0:
            return os.geteuid(), os.getegid()
        for owned in (self.path / "data", self.path):
            with contextlib.suppress(FileNotFoundError, KeyError):  # initdb wants a user that has a name
                owner = owned.stat().st_uid
                if owner != 0:
                    return owner, pwd.getpwuid(owner).pw_gid
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam("nobody")
            return entry.pw_uid, entry.pw_gid
        raise Failure(
            "PostgreSQL refuses to run as root, and this system has no user 'nobody'",
            "run as an ordinary user, or give the directory to one",
        )

    def as_account(self) -> dict[str, Any]:
        """Arguments for `subprocess` that make a command run as the server's user."""
        if os.geteuid() != 0:
            return {}
        user, group = self.account
        return {"user": user, "group": group, "extra_groups": []}

    def account_may(self, target: Path, mode: int) -> bool:
        """Whether the server's user has this access, checked by the kernel."""
        if os.geteuid() != 0:
            return os.access(target, mode)
        asked = [flag for bit, flag in _TESTS.items() if mode & bit] or ["-e"]
        # A program of its own, not a fork: the caller may have threads.
        return all(
            subprocess.run(["test", flag, str(target)], check=False, **self.as_account()).returncode == 0
            for flag in asked
        )

    def give_directory(self, directory: Path) -> None:
        """Create a private directory of the server's user if it does not exist."""
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(directory, *self.account)

    def open_lock(self, name: str) -> int:
        return open_lock(self.path / name)

    def still_has(self, users: int) -> bool:
        """Whether `users.lock` is still the file that we hold, so that the directory was not deleted, moved or made
        anew."""
        try:
            return os.path.samestat((self.path / "users.lock").stat(), os.fstat(users))
        except OSError:
            return False

    def stop_is_requested(self) -> bool:
        return (self.path / "stop.request").exists()

    def forget_stop_request(self) -> None:
        (self.path / "stop.request").unlink(missing_ok=True)

    def settings(self) -> dict[str, str]:
        """The settings that users asked for. They are stored here, because any user may start the server next time."""
        return dict(self.read_json("settings.json") or {})

    def read_json(self, name: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.path / name).read_text())
        return None

    def write_json(self, name: str, value: Any) -> None:
        fresh = self.path / f"{name}.new"
        fresh.write_text(json.dumps(value))
        hand_over(fresh)
        fresh.replace(self.path / name)

    def redirect_output(self) -> None:
        """Send the output of this process and of the server to the log; one older log file is kept."""
        target = self.path / "server.log"
        if self.log_size() > LOG_LIMIT:
            target.replace(self.path / "server.log.1")
        log = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        hand_over(target)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, number)
        os.close(log)
        os.close(nothing)

    def log(self, text: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "[keeper]", text, flush=True)

    def log_size(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self.path / "server.log").stat().st_size
        return 0

    def log_since(self, offset: int) -> str:
        with (self.path / "server.log").open("rb") as log:
            log.seek(offset)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-12:])


def open_lock(file: Path) -> int:
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    hand_over(file)
    return fd


def hand_over(file: Path) -> None:
    """Files that root creates in a user's directory are given to that user, who may come without root next time."""
    if os.geteuid() == 0:
        owner = file.parent.stat()
        os.chown(file, owner.st_uid, owner.st_gid)


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
