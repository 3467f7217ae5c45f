"""Runs one program of a project, and everything that it starts, on a leash: all of it ends when it is told to, or when
the process that holds the other end is gone, however that ended (X-31). It is started by its path with the words of the
program, because it needs nothing of horsies. The leash is its standard input: `i` interrupts the program as Ctrl-C
would, anything else, or the end, kills.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36
NOT_FOUND = 127
LOOK_S = 0.01
INTERRUPT = b"i"


def main(words: list[str]) -> int:
    """The exit code of the program; that of a shell if a signal ended it or if it is not there."""
    adopt_orphans()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)  # tells of SIGCHLD
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # whoever holds the leash decides
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    try:
        program = subprocess.Popen(words, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_default_signals)
    except OSError as problem:
        sys.stderr.write(f"{words[0]}: {problem.strerror}\n")
        return NOT_FOUND
    while program.poll() is None:
        ready, _, _ = select.select([0, reading], [], [])
        if reading in ready:
            os.read(reading, 1024)
        if 0 in ready:
            if os.read(0, 1) != INTERRUPT:
                break
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGINT)
    kill_all()
    code = program.wait()
    return code if code >= 0 else 128 - code


def adopt_orphans() -> None:
    """What the program's children leave behind becomes ours, so that it is found at the end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_all() -> None:
    """Everything below this process. One may start others meanwhile, so this looks until none is left."""
    while below := [one for one in psutil.Process().children(recursive=True) if _runs(one)]:
        for process in below:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(LOOK_S)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _default_signals() -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
