"""How a child talks with its supervisor: the io thread, the inbox that it fills, and the socket.

`ChildIO` is the io thread: it reads the messages of the supervisor, reports that the child is alive, and watches the
start hooks. It lives as long as the child and never runs user code. Whatever the main thread does, this thread notices
within moments that the supervisor is gone, and ends the process. If the supervisor exists but is silent, as when it is
stopped, the child waits until the time that the last message allowed; after that others may take over its tasks
(R-101). `Inbox` holds the tasks that the main thread has not run yet (`run.py`). `Uplink` is the socket: it sends
frames complete and in order, or ends the child. A child that cannot report must not continue to run tasks that nobody
can see (W-54). That includes copies which user code made by `fork`: they lose the socket in the fork and end at the
first attempt to report (W-31).
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from time import monotonic
from typing import NamedTuple, NoReturn, Protocol

from horsies.core.child import wire
from horsies.core.child.notes import Bell, Notes
from horsies.core.child.wire import Decoder, Frame, Kind, clock

PLAIN_PARTS = 5  # of a task that is not traced
WATCH_EVERY_MS = 50  # while the child starts
SHORTEST_S = 0.01  # between two tries to send what tasks say
HIGH_FD = 1000

EXIT_LOST = 70  # there is no supervisor to report to, or the child's own machinery is broken
EXIT_ALONE = 75  # the supervisor was silent for too long, and others may take over soon
EXIT_BROKEN = 78  # the app cannot be served; a BROKEN frame says why


class RunsTasks(Protocol):
    """What the io thread must know about the work of the main thread."""

    def tokens(self) -> list[int]: ...
    def stop(self, token: int) -> None: ...


class ChildIO:
    """The io thread. It is started before the app is loaded; from `serve` on it knows what runs."""

    def __init__(self, uplink: Uplink, inbox: Inbox, beat_interval_ms: int, notes: Notes | None = None) -> None:
        self._uplink = uplink
        self._inbox = inbox
        self._notes = Notes(inbox.held) if notes is None else notes
        self._bell: Bell | None = None  # of log lines that wait
        self._interval = beat_interval_ms / 1000
        self._next_beat = 0.0
        self._running: RunsTasks | None = None
        self._limit: tuple[float, str] | None = None
        self._poll = select.poll()
        self._decoder = Decoder()
        self._may_run_until = math.inf  # unless another message of the supervisor extends it

    def start(self) -> None:
        threading.Thread(target=self._run, name="horsies-io", daemon=True).start()

    def listen_to_notes(self) -> None:
        """From now on, send log lines a moment after they were logged, instead of with the next beat."""
        ear, mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._bell = Bell(_move_up(ear), _move_up(mouth))
        self._poll.register(self._bell.ear, select.POLLIN)
        self._notes.wake = self._bell.ring

    def limit(self, seconds: float, what: str) -> None:
        """End the child with this text if `unlimit` is not called in time."""
        self._limit = (monotonic() + seconds, what)

    def unlimit(self) -> None:
        self._limit = None

    def is_late(self) -> bool:
        """Whether its time is over, as after a pause. In that case nothing may begin until waiting messages have been
        read: if there are none, this thread ends the process in a moment."""
        return clock() > self._may_run_until

    def serve(self, running: RunsTasks) -> None:
        """The child is ready: from now on there may be tasks to report and to stop."""
        self._running = running

    def _run(self) -> None:
        try:
            self._poll.register(self._uplink.sock, select.POLLIN)
            while True:
                heard = self._receive() if self._is_spoken_to(self._timeout_ms()) else []
                if clock() > self._may_run_until:
                    self._end_if_alone(heard)
                self._hear(heard)
                self._beat()
                if self._notes.noted:
                    self._send_notes()
                self._watch()
        except BaseException:
            if not sys.is_finalizing():
                sys.excepthook(*sys.exc_info())
            os._exit(EXIT_LOST)

    def _timeout_ms(self) -> float | None:
        if self._running is None:
            return WATCH_EVERY_MS
        if not self._inbox.held:
            return None
        wait = min(self._next_beat - monotonic(), self._may_run_until - clock())
        if self._notes.noted and (notes_wait := self._notes.due_in()) is not None:
            wait = min(wait, max(notes_wait, SHORTEST_S))  # not at once, if there was no room for them
        return max(0.0, wait * 1000) + 1

    def _is_spoken_to(self, timeout_ms: float | None) -> bool:
        """Wait until the supervisor has said something, or the bell has rung, or the time is over."""
        ready = self._poll.poll(timeout_ms)
        if self._bell is not None and any(fd == self._bell.ear for fd, _ in ready) and not self._bell.answer():
            self._poll.unregister(self._bell.ear)  # user code has closed it; the lines go with the beats from now on
            self._bell = None
        return any(fd == self._uplink.fd for fd, _ in ready)

    def _send_notes(self) -> None:
        while (note := self._notes.next()) is not None and self._uplink.send_if_room(note.data):
            self._notes.sent(note)

    def _receive(self) -> list[Frame]:
        return self._decoder.feed(self._uplink.receive())

    def _end_if_alone(self, heard: list[Frame]) -> None:
        """Its time is over. Read all waiting messages: unless one of them extends the time, nothing may run here any
        more."""
        while self._is_spoken_to(0):
            heard += self._receive()
        for kind, number, _ in heard:
            if kind is Kind.MAY_RUN_UNTIL:
                self._may_run_until = number / 1e9
        if clock() > self._may_run_until and (self._inbox.held or any(kind is Kind.RUN for kind, _, _ in heard)):
            end_alone()

    def _hear(self, frames: list[Frame]) -> None:
        items = []
        for kind, number, parts in frames:
            if kind is Kind.RUN:
                items.append(Item(number, parts))
                continue
            if items:  # the supervisor said this after it had sent these tasks
                self._put(items)
                items = []
            if kind is Kind.TAKE_BACK:
                self._give_up(wire.tokens_of(parts))
            elif kind is Kind.STOP:
                self._stop(number)
            elif kind is Kind.MAY_RUN_UNTIL:
                self._may_run_until = number / 1e9
                if clock() > self._may_run_until:
                    self._end_if_alone(frames)  # what it reads is appended, so this loop handles it too
            elif kind is Kind.LEAVING:
                self._inbox.is_leaving = True
            elif kind is Kind.BYE:
                self._inbox.close()
        if items:
            self._put(items)

    def _put(self, items: list[Item]) -> None:
        if not self._inbox.held:
            self._next_beat = monotonic() + self._interval
        self._inbox.put(items)

    def _give_up(self, tokens: list[int]) -> None:
        removed = self._inbox.take_back(tokens)
        if removed:
            self._uplink.send(wire.pack_tokens(Kind.GAVE_UP, removed))

    def _stop(self, token: int) -> None:
        if self._inbox.take_back([token]):
            self._uplink.send(wire.pack_tokens(Kind.GAVE_UP, [token]))
        elif self._running is not None:
            self._running.stop(token)

    def _beat(self) -> None:
        if self._running is None or not self._inbox.held:
            return
        now = monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + self._interval
        tokens = self._running.tokens()
        if tokens:
            self._uplink.send_if_room(wire.pack_tokens(Kind.BEAT, tokens))

    def _watch(self) -> None:
        limit = self._limit
        if limit is not None and monotonic() > limit[0]:
            self._uplink.send(wire.pack(Kind.BROKEN, 0, limit[1].encode("utf-8", "replace")))
            os._exit(EXIT_BROKEN)


class Item(NamedTuple):
    """One task to run, as it was received."""

    token: int
    parts: list[bytes]  # task name, args, kwargs, what to note in the start journal, `RunFacts`, what its span says

    @property
    def task_name(self) -> str:
        return self.parts[0].decode("utf-8", "replace")

    @property
    def args(self) -> str | None:
        return _text(self.parts[1])

    @property
    def kwargs(self) -> str | None:
        return _text(self.parts[2])

    @property
    def entry(self) -> bytes:
        return self.parts[3]

    @property
    def facts(self) -> bytes:
        return self.parts[4]

    @property
    def about(self) -> bytes:
        """What its span says: present only if there are more than `PLAIN_PARTS`."""
        return self.parts[PLAIN_PARTS]


class Inbox:
    """The tasks that a child has received and not run yet, in the order of their arrival. The io thread fills it, and
    the main thread empties it.

    There are no locks: each step is one operation on a dict or a deque, which is atomic in Python. `_waiting` decides
    who gets a task, the main thread that runs it or the supervisor that takes it back: only one of them can pop it."""

    def __init__(self) -> None:
        self.held: set[int] = set()  # received, and neither reported done nor given up
        self.is_closed = False
        self.is_leaving = False  # the worker stops; what runs may end by itself
        self._order: deque[int] = deque()
        self._waiting: dict[int, Item] = {}
        self._is_asleep = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._on_change: Callable[[], None] = self._ring

    # The io thread

    def put(self, items: Iterable[Item]) -> None:
        for item in items:
            self.held.add(item.token)
            self._waiting[item.token] = item
            self._order.append(item.token)
        self._on_change()

    def take_back(self, tokens: Iterable[int]) -> list[int]:
        """Remove tasks that have not been taken to run; return those that were removed."""
        removed = [token for token in tokens if self._waiting.pop(token, None) is not None]
        self.held.difference_update(removed)
        return removed

    def close(self) -> None:
        """Nothing more will come: `wait` returns None once everything has been taken."""
        self.is_closed = True
        self._on_change()

    # The main thread

    def poll(self) -> Item | None:
        """Take the next task, if there is one."""
        order = self._order
        while order:
            item = self._waiting.pop(order.popleft(), None)
            if item is not None:
                return item
        return None

    def peek(self) -> Item | None:
        """Look at the next task. It can still be taken back before it is taken."""
        order = self._order
        while order:
            item = self._waiting.get(order[0])
            if item is not None:
                return item
            order.popleft()
        return None

    def take(self, peeked: Item) -> bool:
        """Take the task that `peek` has just shown. False if it was taken back in between."""
        self._order.popleft()
        return self._waiting.pop(peeked.token, None) is not None

    def wait(self) -> Item | None:
        """Take the next task, and sleep until there is one. None if there will be none."""
        while True:
            self._is_asleep = True  # set before the last look, so that whoever puts a task after that look rings
            item = self.poll()
            if item is not None or self.is_closed:
                self._is_asleep = False
                return item
            self._bell.get()

    def notify(self, callback: Callable[[], None] | None) -> None:
        """Set who is informed of changes: the sleeping main thread, or else this callback."""
        self._on_change = callback or self._ring

    def _ring(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            self._bell.put(None)


def _text(part: bytes) -> str | None:
    return part.decode("utf-8", "surrogatepass") if part else None


class Uplink:
    """The child's end of the socket, for the main thread and the io thread: each send is complete before the next one
    begins."""

    def __init__(self, sock: socket.socket, outbox: wire.Outbox) -> None:
        self.sock = _moved_up(sock)
        self.fd = self.sock.fileno()
        self._outbox = outbox
        self._kept: list[bytes] = []  # reports of ended tasks that are in the outbox
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

    def keep(self, ended: bytes, started: bytes) -> bool:
        """Keep the report of the task that has ended, and that of the next one, where the supervisor finds them if this
        process dies. False if there is no room for them. Only the main thread calls this and `flush`."""
        if self.is_copy:
            leave(0)
        if not self._outbox.add(ended + started):
            return False
        self._kept.append(ended)
        return True

    def flush(self, ended: bytes = b"", started: bytes = b"") -> None:
        """Send what was kept, and then this. That those which have ended were started needs no report of its own."""
        if said := b"".join((*self._kept, ended, started)):
            self.send(said)
            self._kept.clear()
            self._outbox.clear()

    def send_if_room(self, data: bytes) -> bool:
        """Send a few bytes that need not arrive now; False if there is no room. A supervisor that does not read must
        not block the io thread, which has to notice that the child's time is over (R-101)."""
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT)
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not poll.poll(0):
                return False
            self.sock.sendall(data)
            return True
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


def _moved_up(sock: socket.socket) -> socket.socket:
    return socket.socket(fileno=_move_up(sock.detach()))


def _move_up(fd: int) -> int:
    """Give a descriptor a high number. User code that closes and opens descriptors gets low numbers: it may close ours,
    which we notice, but it never gets our number, so we never write into a file of the user."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = HIGH_FD if soft == resource.RLIM_INFINITY else min(HIGH_FD, soft - 8)
    try:
        higher = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:
        return fd
    os.close(fd)
    return higher
