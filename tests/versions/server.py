"""A server that lives as long as the tests of one version: in a directory of its own, behind a socket and a password.
Run by root, it belongs to another account, because PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.conftest import SETTINGS, servers_home
from tests.versions.binaries import Install, NotHere, find

ACCOUNTS = ("postgres", "nobody")
START_S, STOP_S = 60.0, 30.0
ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


@contextlib.contextmanager
def temporary_server(major: int) -> Iterator[tuple[str, Install]]:
    """Its URL, and where its programs are from."""
    directory = Path(tempfile.mkdtemp(prefix="horsies-pg-", dir=servers_home()))
    directory.chmod(0o711)  # run by root, the server's account must get through
    try:
        install = find(major, directory)
        password = secrets.token_hex(16)
        data = _initialize(directory, install, password)
        with _running(directory, data, install):
            yield f"postgresql://postgres:{password}@/postgres?host={directory / 'socket'}&port=5432", install
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _initialize(directory: Path, install: Install, password: str) -> Path:
    for name in ("data", "socket"):
        (directory / name).mkdir(mode=0o700)
    secret = directory / "data.password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    if account := _account():
        for owned in (directory / "data", directory / "socket", secret):
            os.chown(owned, account["user"], account["group"])
    command = [str(install.home / "bin/initdb"), "-D", str(directory / "data"), "--username=postgres"]
    command += [f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(command, cwd="/", env=ENVIRONMENT, capture_output=True, text=True, check=False, **account)
    secret.unlink()
    if done.returncode != 0:
        raise NotHere(f"initdb failed: {(done.stderr or done.stdout).strip()}")
    return directory / "data"


@contextlib.contextmanager
def _running(directory: Path, data: Path, install: Install) -> Iterator[None]:
    settings = SETTINGS | {"listen_addresses": "", "unix_socket_directories": str(directory / "socket")}
    command = [str(install.home / "bin/postgres"), "-D", str(data)]
    command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    log = directory / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd="/", env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **_account()
        )
        try:
            _wait_until_ready(process, directory / "socket", log)
            yield
        finally:
            _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    """It is ready when it asks for the password."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(host=str(socket), user="postgres", dbname="postgres", connect_timeout=5)
        except psycopg.OperationalError as error:
            if "no password supplied" in str(error):
                return
        time.sleep(0.05)
    raise NotHere("the server did not start: " + " / ".join(log.read_text(errors="replace").splitlines()[-5:]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Fast shutdown, then no patience: the data is thrown away."""
    for sig in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        process.send_signal(sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            return


def _account() -> dict[str, Any]:
    """Arguments of `subprocess` for a command that must not be root's."""
    if os.geteuid() != 0:
        return {}
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NotHere(f"PostgreSQL refuses to run as root, and there is no account {' or '.join(ACCOUNTS)}")
