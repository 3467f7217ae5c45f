"""The identity of this worker for others: its id, and the facts by which a process on its host can tell that it is
gone.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from horsies.core.recovery.processes import process_start
from horsies.core.schema.locks import lock_key, worker_purpose

MOST_NAMES = 1_000


@dataclass(frozen=True, slots=True)
class Identity:
    """`worker_id` is new on every start and constant for the life of the process (W-02)."""

    worker_id: str
    hostname: str
    pid: int
    boot_id: str | None
    pid_namespace: str | None
    process_start: int | None

    @property
    def liveness_key(self) -> int:
        return lock_key(worker_purpose(self.worker_id))


def identify() -> Identity:
    pid = os.getpid()
    hostname = socket.gethostname()
    # The id names the host for people; a host name that would not fit its column is cut, the hex digits keep it unique.
    return Identity(
        worker_id=f"{hostname[:200]}:{pid}:{secrets.token_hex(4)}",
        hostname=hostname,
        pid=pid,
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
        process_start=process_start(pid),
    )


def publishable(task_names: Sequence[str]) -> list[str] | None:
    """The tasks that a worker can run, for its row; they are used to explain why a task is not running. None if there
    are too many."""
    is_small = len(task_names) <= MOST_NAMES and sum(map(len, task_names)) <= MOST_NAMES * 32
    return list(task_names) if is_small else None


def _pid_namespace() -> str | None:
    try:
        found = re.search(r"\d+", os.readlink("/proc/self/ns/pid"))
    except OSError:
        return None
    return found.group() if found else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
