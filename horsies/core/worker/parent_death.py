"""Kernel features for parents and children. Linux has them; other systems do without.

A process can be killed when its parent ends, even if it could not notice that itself. And a process can become the
parent of its orphaned descendants, so that processes which tasks leave behind are reaped even if nothing else does it
(a worker that is process 1 of a container).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> None:
    """Kill this process with SIGKILL when the process `parent` ends, also if that has just happened."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


def adopt_orphans() -> None:
    """Descendants whose parent has ended become children of this process, which has to reap them."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show (15 bytes of it)."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
