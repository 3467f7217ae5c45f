"""The child's end of the socket: it sends frames to the supervisor, complete and in order, or ends the child.

A child that cannot report must not continue to run tasks that nobody can see (W-54), so every failure here ends the
process. That includes copies which user code made by `fork`: they lose the socket in the fork and end at the first
attempt to report (W-31).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

EXIT_LOST = 70  # no supervisor to report to, or the child's own machinery is broken
EXIT_ALONE = 75  # no word from the supervisor for too long: others may take over soon
EXIT_BROKEN = 78  # the app cannot be served; a BROKEN frame says why
HIGH_FD = 1000


class Uplink:
    """Used by the main thread and the io thread; each send is complete before the next one begins."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = _move_up(sock)
        self.sock.setblocking(True)
        self.is_copy = False
        self.on_copied: Callable[[], None] | None = None
        self._lock = threading.Lock()
        os.register_at_fork(before=flush_stdio, after_in_child=self._copied)

    def send(self, data: bytes) -> None:
        """Write everything, however long the supervisor takes to read it."""
        if self.is_copy:
            leave(0)
        try:
            with self._lock:
                self.sock.sendall(data)
        except OSError:
            os._exit(EXIT_LOST)

    def send_if_room(self, data: bytes) -> None:
        """Send a few bytes that need not arrive. A supervisor that does not read must not block the io thread, which
        has to notice that the child's time is over (R-101)."""
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT)
        if not self._lock.acquire(blocking=False):
            return
        try:
            if poll.poll(0):
                self.sock.sendall(data)
        except OSError:
            os._exit(EXIT_LOST)
        finally:
            self._lock.release()

    def receive(self) -> bytes:
        """Wait for data and return it. The end of the stream is the end of the child."""
        try:
            data = self.sock.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            os._exit(EXIT_LOST)
        return data

    def _copied(self) -> None:
        self.is_copy = True
        with contextlib.suppress(OSError):
            os.close(self.sock.detach())
        if self.on_copied is not None:
            self.on_copied()


def leave(code: int) -> NoReturn:
    """End this process now. Threads that never end cannot hold it, and no user code runs any more."""
    flush_stdio()
    os._exit(code)


def end_alone() -> NoReturn:
    """End this process and all processes that its tasks started. It leaves its group first; otherwise the signal would
    hit it as well, and hide why it ended."""
    if (group := os.getpgrp()) == os.getpid():
        with contextlib.suppress(OSError):
            os.setpgid(0, os.getpgid(os.getppid()))
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    os._exit(EXIT_ALONE)


def flush_stdio() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # user code may have closed or replaced it
            stream.flush()


def _move_up(sock: socket.socket) -> socket.socket:
    """Give the socket a high number. User code that closes and opens descriptors gets low numbers: it may close ours,
    which we notice, but it never gets our number, so we never write into a file of the user."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = HIGH_FD if soft == resource.RLIM_INFINITY else min(HIGH_FD, soft - 8)
    try:
        fd = fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:
        return sock
    sock.close()
    return socket.socket(fileno=fd)
