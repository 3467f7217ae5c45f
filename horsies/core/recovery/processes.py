"""What the system says about a process of this host: whether the pid exists, whether the process has ended, and when it
began.

It answers only if it is sure. A process that may not be inspected counts as existing, and without `/proc` its start is
unknown.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """`is_there` is None if it is unknown."""

    is_there: bool | None
    has_ended: bool = False  # a zombie: it waits for its parent to take notice and will do nothing more
    start: int | None = None  # in ticks since boot


UNKNOWN = Process(None)


def look_at(pid: int | None) -> Process:
    """The process with this pid, as far as this process may see it."""
    if pid is None or pid <= 0:
        return UNKNOWN
    # Asked first and not read off /proc, where processes of others may be hidden: what is hidden there is not gone.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return Process(False)
    except PermissionError:
        pass
    except OSError:
        return UNKNOWN
    stat = _stat(pid)
    return Process(True) if stat is None else Process(True, stat.has_ended, stat.start)


def process_start(pid: int) -> int | None:
    """When this process started, in ticks since boot (never wall-clock time, which a corrected clock would shift)."""
    stat = _stat(pid)
    return None if stat is None else stat.start


class _Stat(NamedTuple):
    has_ended: bool
    start: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name, in parentheses, may hold anything; the fields after it are plain.
    fields = text.rpartition(")")[2].split()
    if len(fields) <= 19:
        return None
    state, threads, start = fields[0], int(fields[17]), int(fields[19])
    # The first thread of a process can end before the others; until they have, the process goes on.
    return _Stat(state in "ZX" and threads <= 1, start)
