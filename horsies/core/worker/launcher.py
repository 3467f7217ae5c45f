"""The supervisor's side of the fork server: starts it, requests children, sends them signals, and learns of their end.

A separate small process (`child/forkserver.py`) forks the children, because the supervisor has threads and connections
that must not be copied. It has already imported the library, so a child starts within milliseconds. A program that
could fork it early passes it in; otherwise, and after its death, one is started as a program. Every signal goes
through the fork server too: only it reaps children, so only it knows that a pid still belongs to one. All methods
belong to the thread of the event loop that `start` was called on, and none of them blocks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal as signals
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from horsies.core.child import wire
from horsies.core.child.forkserver import ForkedServer
from horsies.core.child.wire import ChildSpec, Decoder, Frame, Kind, WireError
from horsies.core.worker.finalize import describe_exit

__all__ = ["ChildProcess", "ChildSpec", "Launcher", "LauncherDied"]

log = logging.getLogger("horsies.worker")

BUFFER_BYTES = 1 << 20
HELLO_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
FAREWELL_S = 0.05  # between the end of its socket and its own


class LauncherDied(Exception):
    """The fork server does not exist (any more), and its children are gone with it. `start` makes a new one."""


class ChildProcess:
    """One child: its pid, the supervisor's end of its socket, its end.

    `exited` has the return code as in `subprocess`: the exit code, or minus the signal that killed it (-9 also if the
    fork server died and took the child along, which `why_lost` says). What the child wrote before may still be in
    `sock`, and what it could not send any more in `outbox`.
    """

    def __init__(self, launcher: Launcher, number: int, name: str, sock: socket.socket) -> None:
        self.pid = 0
        self.name = name
        self.sock = sock
        self.outbox: wire.Outbox | None = None
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.peak_rss_kb = 0  # known once it has exited
        self.why_lost: str | None = None  # it ended with the fork server, and nothing that it ran is the cause
        self._launcher = launcher
        self._number = number

    def __repr__(self) -> str:
        return f"<ChildProcess {self.name} pid={self.pid}>"

    def close_outbox(self) -> None:
        """It has ended, and what it left has been read."""
        if self.outbox is not None:
            self.outbox.close()
            self.outbox = None

    def signal(self, sig: int) -> None:
        """Send a signal to the child alone. Nothing happens if it has ended."""
        self._launcher._signal(self._number, sig, group=False)

    def kill_group(self, sig: int = signals.SIGKILL) -> None:
        """Send a signal to the child and to every process that its tasks started and that is still in its group."""
        self._launcher._signal(self._number, sig, group=True)


class Launcher:
    """One fork server process and its children. `forked` is a fork server that exists already."""

    def __init__(self, forked: ForkedServer | None = None) -> None:
        self._forked = forked
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: ForkedServer | subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._decoder = Decoder()
        self._outgoing: deque[tuple[bytes, Sequence[int]]] = deque()
        self._hello: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._is_stopping = False
        self._numbers = 0
        self._spawning: dict[int, asyncio.Future[int]] = {}
        self._children: dict[int, ChildProcess] = {}

    @property
    def is_running(self) -> bool:
        return self._control is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def _is_ready(self) -> bool:
        return self._hello is not None and self._hello.done()

    async def start(self) -> None:
        """Start the fork server and wait until it has imported what children need. It can be called again after the
        server died."""
        if self.is_running:
            return
        self._loop, self._is_stopping = asyncio.get_running_loop(), False
        if self._forked is not None and not self._forked.is_reachable:
            self._forked.abandon()
            self._forked = None
        if self._forked is not None:
            self._process, ours, self._forked = self._forked, self._forked.control, None
        else:
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = _start_process(theirs)
        ours.setblocking(False)
        self._control, self._decoder = ours, Decoder()
        self._hello, self._gone = self._loop.create_future(), self._loop.create_future()
        self._loop.add_reader(ours.fileno(), self._readable)
        try:
            await asyncio.wait_for(asyncio.shield(self._hello), HELLO_TIMEOUT_S)
        except BaseException:
            self._is_stopping = True
            self._lost()
            raise

    async def spawn(self, spec: ChildSpec, name: str) -> ChildProcess:
        """Fork one child. It exists when this returns; it is ready when its READY frame arrives over its socket."""
        if self._loop is None or not self.is_running:
            raise LauncherDied("the fork server is not running")
        self._numbers += 1
        number = self._numbers
        ours, theirs = _socket_pair()
        child = ChildProcess(self, number, name, ours)
        outbox, child.outbox = _outbox()
        answer: asyncio.Future[int] = self._loop.create_future()
        self._spawning[number], self._children[number] = answer, child
        try:
            self._post(wire.pack(Kind.SPAWN, number, name.encode(), spec.to_json()), [theirs.detach(), outbox])
            child.pid = await answer
        except BaseException:
            ours.close()  # a child that nobody will own sees the end of file and ends itself
            child.close_outbox()
            self._spawning.pop(number, None)
            raise
        return child

    async def stop(self) -> None:
        """End the fork server. It kills its remaining children and all processes they started."""
        if self._forked is not None:  # never started
            self._forked.abandon()
            self._forked = None
        if self._control is None or self._gone is None:
            return
        self._is_stopping = True
        self._control.shutdown(socket.SHUT_WR)  # its end of file; ours comes when it is done
        try:
            await asyncio.wait_for(asyncio.shield(self._gone), STOP_TIMEOUT_S)
        except TimeoutError:
            self._lost()

    # Talking to the fork server

    def _signal(self, number: int, sig: int, *, group: bool) -> None:
        child = self._children.get(number)
        if child is not None and not child.exited.done() and self.is_running:
            self._post(wire.pack(Kind.SIGNAL, number, wire.pack_unsigned(sig), b"1" if group else b"0"))

    def _post(self, data: bytes, fds: Sequence[int] = ()) -> None:
        self._outgoing.append((data, fds))
        self._flush()

    def _flush(self) -> None:
        assert self._control is not None and self._loop is not None
        try:
            while self._outgoing:
                data, fds = self._outgoing[0]
                sent = socket.send_fds(self._control, [data], list(fds)) if fds else self._control.send(data)
                for fd in fds:
                    os.close(fd)
                self._outgoing.popleft()
                if sent < len(data):
                    self._outgoing.appendleft((data[sent:], ()))
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._control.fileno(), self._flush)
            return
        except OSError:
            self._lost()
            return
        self._loop.remove_writer(self._control.fileno())

    def _readable(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(65536)
            frames = self._decoder.feed(data)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, WireError):
            data, frames = b"", []
        for frame in frames:
            self._hear(frame)
        if not data:
            self._lost()

    def _hear(self, frame: Frame) -> None:
        kind, number, parts = frame
        if kind is Kind.HELLO and self._hello is not None:
            if not self._hello.done():
                self._hello.set_result(None)
        elif kind is Kind.SPAWNED:
            self._answer(number, pid=wire.unsigned(parts[0]))
        elif kind is Kind.REFUSED:
            self._children.pop(number, None)
            self._answer(number, error=parts[0].decode("utf-8", "replace"))
        elif kind is Kind.EXITED and (child := self._children.pop(number, None)) is not None:
            child.peak_rss_kb = wire.unsigned(parts[1])
            if not child.exited.done():
                child.exited.set_result(wire.signed(parts[0]))

    def _answer(self, number: int, *, pid: int = 0, error: str | None = None) -> None:
        waiting = self._spawning.pop(number, None)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(pid)
        else:
            waiting.set_exception(OSError(error))

    def _lost(self) -> None:
        """The fork server is gone, or must be ended. The kernel kills its children; we kill the processes that they
        started."""
        if self._control is None or self._loop is None or self._process is None or self._gone is None:
            return
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        self._control = None
        how = self._end_server()
        for _, fds in self._outgoing:
            for fd in fds:
                os.close(fd)
        self._outgoing.clear()
        died = LauncherDied(f"the fork server {how}{'' if self._is_ready else ' before it was ready'}")
        for waiting in (self._hello, *self._spawning.values()):
            if waiting is not None and not waiting.done():
                waiting.set_exception(died)
                waiting.exception()  # read it, because the caller that waited may be gone
        self._spawning.clear()
        children, self._children = self._children, {}
        for child in children.values():
            if child.pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signals.SIGKILL)
            if not child.exited.done():
                child.why_lost = f"the fork server, process {self._process.pid}, {how}, and its children end with it"
                child.exited.set_result(-signals.SIGKILL)
        if not self._gone.done():
            self._gone.set_result(None)

    def _end_server(self) -> str:
        """Make sure that it has ended; how it did, for people."""
        assert self._process is not None
        try:  # its socket may be closed a moment before it can be waited for
            code = self._process.wait(FAREWELL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = describe_exit(code)
        if self._is_ready and not self._is_stopping:  # if it is not ready, whoever waits for it says so
            log.error(
                "the fork server, process %d, %s: its children end with it (%d), and a new one is started when the next"
                " child is needed",
                self._process.pid, how, len(self._children), extra={"horsies": {"pid": self._process.pid}},
            )  # fmt: skip
        return how


def _start_process(control: socket.socket) -> subprocess.Popen[bytes]:
    # It is started by file name and with -P, so that neither the current directory nor that of this package comes to
    # the front of sys.path, where a module of the user could hide one of the standard library.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    program = str(Path(wire.__file__).with_name("forkserver.py"))
    command = [sys.executable, *(flag for flag in flags if flag != "-P"), "-P", program, str(control.fileno())]
    # It gets its own session, so that Ctrl-C in a terminal reaches only the supervisor.
    return subprocess.Popen(command, pass_fds=[control.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)


def _outbox() -> tuple[int, wire.Outbox]:
    """A new outbox and its descriptor, for the child; it is gone with the last process that has it."""
    fd = _shared_memory()
    try:
        return fd, wire.Outbox(fd)
    except BaseException:
        os.close(fd)
        raise


def _shared_memory() -> int:
    with contextlib.suppress(AttributeError, OSError):  # not everywhere, and some sandboxes refuse it
        return _sized(os.memfd_create("horsies-outbox"))
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(bytes(wire.OUTBOX_BYTES))  # now, because a full disk would kill a process that writes to it later
        return os.dup(file.fileno())


def _sized(fd: int) -> int:
    try:
        os.ftruncate(fd, wire.OUTBOX_BYTES)
    except OSError:
        os.close(fd)
        raise
    return fd


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return ours, theirs
