"""Ask the kernel to kill this process when its parent ends. Linux can; elsewhere the end of a socket has to do."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the process `parent` ends, also if that has just happened."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)


def name_process(name: str) -> None:
    """The name that `ps` and `top` show (15 bytes of it)."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
