"""The fork server: a small process that forks children for a supervisor and reaps them (W-41).

It runs no user code and has no threads, so a copy of it is a clean start for a child; and it has imported the library,
so the start is quick. It lives exactly as long as its supervisor: when that is gone (its pidfd, or the end of the
control socket), it kills every child together with all processes that the child started, and ends (W-54). If the fork
server itself is killed, the kernel kills its children where the system supports that; otherwise they end at the end of
their socket. What a child does is in `main.py`; the supervisor's side is `worker/launcher.py`.

`horsies worker` forks it from its own process, before that process has threads, connections or the user's app: what
both have imported is loaded once, and shared. Other programs start it as a program of its own.

The functions at the end use features of the Linux kernel; other systems do without. A process can be killed when its
parent ends, even if it could not notice that itself. And a process can become the parent of its orphaned descendants,
so that processes which tasks leave behind are reaped even if nothing else does it (a worker that is process 1 of a
container).
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NoReturn

if __name__ == "__main__":  # started by file name: make sure that `horsies` is this very package
    _root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    if _root not in sys.path:
        sys.path.insert(0, _root)

import psutil

from horsies.core.child import wire

PARENT_CHECK_MS = 500  # how often to check for the supervisor where there are no pidfds
WAIT_STEP_S = 0.005
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(control_fd: int) -> NoReturn:
    """Run as a program: prepare what children need, then serve."""
    supervisor = os.getppid()
    prepare()
    _serve(socket.socket(fileno=control_fd), supervisor)


def prepare() -> None:
    """Import what every child needs, and do once what each would do first. Nothing is collected: that takes a tenth of
    the time, and new objects in the holes that it leaves would copy pages that the processes share."""
    gc.disable()
    import horsies.core.child.main

    horsies.core.child.main.rehearse()
    gc.freeze()  # a later collection must not touch, and so copy, the pages that the processes share
    gc.enable()


class ForkedServer:
    """The fork server that this process has forked, with the supervisor's end of its control socket. The methods are
    those of `subprocess.Popen`."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.returncode: int | None = None
        self._socket = os.fstat(control.fileno()).st_ino

    @property
    def is_reachable(self) -> bool:
        """Whether the descriptor is still that of the socket: an app may close all that it does not know."""
        try:
            return os.fstat(self.control.fileno()).st_ino == self._socket
        except OSError:
            return False

    def poll(self) -> int | None:
        return self._look(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self._look(0 if until is None else os.WNOHANG)) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("the fork server", timeout or 0.0)
            time.sleep(WAIT_STEP_S)
        return code

    def _look(self, how: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, how)
            except ChildProcessError:  # the app has reaped it, and how it ended is lost
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # the app may reap it at any moment
                os.kill(self.pid, signal.SIGKILL)

    def abandon(self) -> None:
        """End a server that has no children. The end of its socket might not be seen: others may have it too."""
        if self.is_reachable:
            self.control.close()
        else:
            self.control.detach()  # the number may be someone else's now
        self.kill()
        self.wait()


def fork_server() -> ForkedServer | None:
    """Fork the fork server from this process; None if this process already has threads, whose locks would be copied."""
    if threading.active_count() > 1:
        return None
    prepare()
    supervisor = os.getpid()
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # there may be none; what it has buffered must be written only once
            stream.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # until the new process has its own handlers
    try:
        pid = os.fork()
        if pid == 0:
            _become_server(theirs.detach(), supervisor)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    theirs.close()
    return ForkedServer(pid, ours)


def _become_server(control_fd: int, supervisor: int) -> NoReturn:
    try:
        for sig in STOP_SIGNALS:
            signal.signal(sig, _noted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        os.setsid()  # Ctrl-C in a terminal reaches only the supervisor
        _close_all_but(control_fd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        name_process("horsies-forks")
        _serve(socket.socket(fileno=control_fd), supervisor)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(70)


def _serve(control: socket.socket, supervisor: int) -> NoReturn:
    adopt_orphans()
    gc.disable()
    ForkServer(control, supervisor).serve()
    os._exit(0)  # nothing is left to be written, and no one waits for memory to be cleared


class ForkServer:
    """Serves one supervisor over one control socket."""

    def __init__(self, control: socket.socket, supervisor: int) -> None:
        self._control = control
        self._decoder = wire.Decoder()
        self._received: list[int] = []  # descriptors that came with SPAWN frames, in their order
        self._pids: dict[int, int] = {}  # number → pid, of children not yet reaped
        self._supervisor = supervisor
        self._bell, self._bell_end = os.pipe()
        self._poll = select.poll()

    def serve(self) -> None:
        """Until the supervisor is gone."""
        os.set_blocking(self._bell, False)
        os.set_blocking(self._bell_end, False)
        signal.set_wakeup_fd(self._bell_end, warn_on_full_buffer=False)
        for sig in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, _noted)  # SIG_IGN would be inherited by programs that tasks start
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)
        timeout = None if self._watch_supervisor() else PARENT_CHECK_MS
        try:
            self._say(wire.pack(wire.Kind.HELLO, 0))
            while os.getppid() == self._supervisor:
                for fd, _ in self._poll.poll(timeout):
                    if fd == self._bell:
                        self._reap_ended()
                    elif fd == self._control.fileno():
                        self._listen()
        except (EOFError, wire.WireError, OSError):
            pass
        finally:
            self._end_children()

    def _watch_supervisor(self) -> bool:
        try:
            self._poll.register(os.pidfd_open(self._supervisor), select.POLLIN)
        except (AttributeError, OSError):
            return False
        return True

    def _say(self, data: bytes) -> None:
        self._control.sendall(data)

    def _listen(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._control, 65536, 64)
        for fd in fds:
            os.set_inheritable(fd, False)
        self._received += fds
        if not data:
            raise EOFError
        for frame in self._decoder.feed(data):
            self._obey(frame)

    def _obey(self, frame: wire.Frame) -> None:
        kind, number, parts = frame
        if kind is wire.Kind.SPAWN:
            self._spawn(number, parts[0].decode(), parts[1])
        elif kind is wire.Kind.SIGNAL and (pid := self._pids.get(number)) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send = os.killpg if parts[1] == b"1" else os.kill
                send(pid, wire.unsigned(parts[0]))

    def _spawn(self, number: int, name: str, spec: bytes) -> None:
        fds = fd, outbox = self._received.pop(0), self._received.pop(0)
        server = os.getpid()
        gc.freeze()  # a collection in a child must not touch, and so copy, the pages that it shares with us
        try:
            pid = os.fork()
        except OSError as error:
            for fd in fds:
                os.close(fd)
            self._say(wire.pack(wire.Kind.REFUSED, number, f"cannot fork: {error}".encode()))
            return
        if pid == 0:
            self._become_child(server, fd, outbox, name, spec)
        with contextlib.suppress(OSError):  # both sides set the group, so it exists from now on whoever comes first
            os.setpgid(pid, pid)
        for fd in fds:
            os.close(fd)
        self._pids[number] = pid
        self._say(wire.pack(wire.Kind.SPAWNED, number, wire.pack_unsigned(pid)))

    def _become_child(self, server: int, fd: int, outbox: int, name: str, spec: bytes) -> NoReturn:
        try:
            os.setpgid(0, 0)
            die_with_parent(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # SIGTERM stays without effect until the child decides
            self._control.detach()  # the object must not close a number that soon belongs to someone else
            _close_all_but(fd, outbox)
            gc.enable()
            from horsies.core.child.main import child_main

            shared = wire.Outbox(outbox)
            os.close(outbox)
            child_main(socket.socket(fileno=fd), shared, spec, name)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(70)

    def _reap_ended(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell, 4096):
                pass
        numbers = {pid: number for number, pid in self._pids.items()}
        for pid in _ended(numbers):
            number = numbers.get(pid)
            if number is None:  # a task had started this process, and it has outlived its parent
                os.waitpid(pid, 0)
            else:
                self._reap(number, pid)

    def _reap(self, number: int, pid: int) -> None:
        _kill_group(pid)  # before the wait: until then nobody else can get this pid, and with it the group
        _, status, usage = os.wait4(pid, 0)
        del self._pids[number]
        code = os.waitstatus_to_exitcode(status)
        peak_kb = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
        self._say(wire.pack(wire.Kind.EXITED, number, wire.pack_signed(code), wire.pack_unsigned(peak_kb)))

    def _end_children(self) -> None:
        for pid in self._pids.values():
            _kill_group(pid)
        for pid in self._pids.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _kill_group(pid: int) -> None:
    """The process group of a child ends with the child: processes that a task started must not outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _ended(children: Iterable[int]) -> Iterator[int]:
    """The processes that wait to be reaped; each must be reaped before the next is requested."""
    if not hasattr(os, "waitid"):
        yield from [pid for pid in children if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE]
        return
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            yield ended.si_pid


def _noted(_signal: int, _frame: object) -> None:
    """SIGCHLD wakes the loop; other signals are meant for the supervisor, whose end also ends this process."""


def _close_all_but(*keep: int) -> None:
    try:
        numbers = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        numbers = list(range(4096))
    for fd in numbers:
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(fd)


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


if __name__ == "__main__":
    main(int(sys.argv[1]))
