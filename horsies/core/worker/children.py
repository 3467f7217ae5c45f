"""The worker's children as processes: started in advance, replaced one by one, killed one at a time.

`Children` makes sure that there are `processes` of them; the death of one does not affect the others (W-36). `Child` is
what the supervisor knows about one of them, `Link` its socket: frames in, frames out, and what is left in the socket
after its death. The dispatcher decides what the children run; how many tasks a child may be given in advance is in
`pace.py`, and the fork server that makes the children is behind `launcher.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heapreplace
from time import monotonic

from horsies.core import events
from horsies.core.child.io import EXIT_ALONE
from horsies.core.child.wire import ChildSpec, Decoder, Frame, Kind, WireError, pack
from horsies.core.recovery.start_journal import Journal
from horsies.core.tasks.catalogue import NOTHING, from_wire
from horsies.core.worker import finalize, in_hand, launcher, pace

log = logging.getLogger("horsies.worker")

READY_TIMEOUT_S = 120.0
FAREWELL_S = 0.1  # between the end of its socket and the report that a child has ended
YOUNG_S = 5.0  # a child that dies younger than this is not replaced at once
READ_BYTES = 1 << 18


class ChildBroken(Exception):
    """A child was not ready in time, or died before it was."""


class AppBroken(ChildBroken):
    """The child reports that it cannot serve the app: a module fails on import, or a start hook failed (W-45)."""


class Children:
    """`on_change` is called when a child has become ready or has ended."""

    def __init__(
        self,
        launcher: launcher.Launcher,
        spec: ChildSpec,
        processes: int,
        journal: Journal,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self.launcher = launcher
        self._spec = spec
        self._journal = journal
        self._processes = processes
        self._on_change = on_change
        self._on_frames: Callable[[Child, list[Frame]], None] = lambda child, frames: None
        self._on_death: Callable[[Child, str], None] = lambda child, how: None
        self._numbers = 0
        self._ready: dict[Child, asyncio.Future[None]] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._vacancies = asyncio.Event()
        self._deaths_in_a_row = 0
        self._closing = False
        self.is_replacing = True
        self.children: list[Child] = []
        self.task_names: frozenset[str] = frozenset()  # those that every usable child knows (O-31)
        self.async_names: list[str] = []
        self.hook_events: list[str] = []  # those that the app has handlers for
        self.catalogue = NOTHING  # what its tasks are sent with, as the newest child knows it

    def report_to(
        self, on_frames: Callable[[Child, list[Frame]], None], on_death: Callable[[Child, str], None]
    ) -> None:
        """`on_frames(child, frames)` gets what a child reports; `on_death(child, how)` is called when it has ended and
        its reports have been read."""
        self._on_frames, self._on_death = on_frames, on_death

    @property
    def usable(self) -> list[Child]:
        return [child for child in self.children if child.is_ready and not child.is_retiring and not child.is_dead]

    async def start(self) -> None:
        """Start all children and wait until they are ready (W-03). Raises ChildBroken if one cannot serve the app."""
        try:
            await self.launcher.start()
            await asyncio.gather(*(self._add() for _ in range(self._processes)))
        except (launcher.LauncherDied, TimeoutError, OSError) as problem:
            raise ChildBroken(str(problem) or "the fork server did not become ready") from problem
        log.debug("child processes ready")

    async def keep_up(self) -> None:
        """Replace dead and retiring children, one by one, for ever. The new child is ready before the old one
        leaves."""
        while True:
            await self._vacancies.wait()
            self._vacancies.clear()
            while len(self.usable) < self._processes and self.is_replacing:
                if self._deaths_in_a_row:
                    await asyncio.sleep(min(30.0, 0.5 * 2 ** min(self._deaths_in_a_row - 1, 6)))
                    if not self.is_replacing:
                        break
                try:
                    await self.launcher.start()
                    await self._add()
                except AppBroken:
                    raise  # another try would fail as well
                except (ChildBroken, launcher.LauncherDied, OSError) as problem:
                    self._deaths_in_a_row += 1
                    level = logging.ERROR if self.is_replacing else logging.DEBUG
                    log.log(level, "a child process could not be started: %s", problem)
                self.dismiss_idle()

    def retire(self, child: Child) -> None:
        """Let this child leave after its tasks; its successor is started now."""
        if not child.is_retiring:
            child.is_retiring = True
            self._note_names()
            self._vacancies.set()

    def dismiss_idle(self) -> None:
        """Let idle retiring children leave, once there are enough others."""
        for child in list(self.children):
            if child.is_retiring and not child.is_dead and child.load == 0 and len(self.usable) >= self._processes:
                child.write(pack(Kind.BYE, 0))

    def kill(self, child: Child, sig: int = signal.SIGKILL, why: str | None = None) -> None:
        child.is_killed, child.why_killed = True, child.why_killed or why
        child.process.kill_group(sig)

    async def close(self) -> None:
        """End all children, politely first. One that is not ready yet has no task, and does not listen."""
        self._closing, self.is_replacing = True, False
        for child in self.children:
            if child.is_ready:
                child.write(pack(Kind.BYE, 0))
            else:
                self.kill(child, why="its worker ends")
        if self._watchers:
            await asyncio.wait(self._watchers, timeout=5.0)
        await self.launcher.stop()
        if self._watchers:
            await asyncio.wait(self._watchers, timeout=5.0)

    async def _add(self) -> None:
        self._numbers += 1
        path = self._journal.path
        spec = replace(self._spec, journal=None if path is None else str(path))
        process = await self.launcher.spawn(spec, f"horsies-child-{self._numbers}")
        child = Child(process)
        ready = self._ready[child] = asyncio.get_running_loop().create_future()
        child.link = Link(
            process.sock, lambda frames: self._heard(child, frames), lambda why: self._link_broken(child, why)
        )
        self.children.append(child)
        watcher = asyncio.create_task(self._watch(child), name=f"watch {child.name}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await ready
        except TimeoutError:
            self.kill(child)
            raise ChildBroken(f"{child.name} was not ready within {READY_TIMEOUT_S:g} s") from None
        finally:
            self._ready.pop(child, None)
        self._on_change()

    def _heard(self, child: Child, frames: list[Frame]) -> None:
        child.last_heard = monotonic()
        if not child.is_ready:
            kind, _, parts = frames[0]
            if kind is Kind.READY:
                self._is_ready(child, json.loads(parts[0]))
                frames = frames[1:]
            elif kind is Kind.BROKEN:
                self._fail_ready(child, AppBroken(parts[0].decode("utf-8", "replace")))
                return
        if frames:
            self._on_frames(child, frames)

    def read_outboxes(self) -> None:
        """Read what lies in the outboxes of children whose code takes longer than they expected."""
        for child in self.children:
            self._read_outbox(child)

    def _read_outbox(self, child: Child, *, is_over: bool = False) -> None:
        outbox = child.process.outbox
        try:
            frames = [] if outbox is None else outbox.left() if is_over else outbox.lying()
        except WireError as problem:
            log.error("the outbox of %s cannot be read: %s", child.name, problem)
            return
        if frames:
            self._heard(child, frames)

    def _is_ready(self, child: Child, info: dict[str, object]) -> None:
        child.is_ready, child.is_traced = True, bool(info.get("traced"))
        if not info.get("journal"):
            self._journal.give_up(f"{child.name} cannot write into it")
        child.rss_mb = child.first_rss_mb = float(str(info.get("rss_mb", 0)))
        child.task_names = frozenset(_names(info, "tasks"))
        self._note_names()
        self.async_names, self.hook_events = _names(info, "async"), _names(info, "hooks")
        self.catalogue = from_wire(info.get("catalogue"))
        self._deaths_in_a_row = 0
        ready = self._ready.get(child)
        if ready is not None and not ready.done():
            ready.set_result(None)
        events.emit("child.ready")

    def _note_names(self) -> None:
        """Children can differ: a module may have changed on the disk between the starts of two of them."""
        sets = {child.task_names for child in self.usable}
        common = frozenset.intersection(*sets) if sets else self.task_names
        if common != self.task_names:
            self.task_names = common

    def _fail_ready(self, child: Child, problem: ChildBroken) -> None:
        ready = self._ready.get(child)
        if ready is not None and not ready.done():
            ready.set_exception(problem)

    def _link_broken(self, child: Child, why: str) -> None:
        """Nobody can hear this child any more, so it must not continue: it is killed, then handled as dead (W-35). A
        child that died closes its socket too, and its end is reported within a moment."""
        asyncio.get_running_loop().call_later(FAREWELL_S, self._kill_unheard, child, why)

    def _kill_unheard(self, child: Child, why: str) -> None:
        if not child.process.exited.done():
            child.broken_link = why
            child.process.kill_group(signal.SIGKILL)

    async def _watch(self, child: Child) -> None:
        returncode = await child.process.exited
        if child.link is not None:
            child.link.drain()
            child.link.close()
        self._read_outbox(child, is_over=True)
        child.process.close_outbox()
        child.is_dead = True
        self.children.remove(child)
        self._note_names()
        if returncode == EXIT_ALONE:
            child.is_killed, child.why_killed = (
                True,
                child.why_killed or "it heard nothing from its worker for too long",
            )
        if child.process.why_lost is not None:
            child.is_killed, child.why_killed = True, child.why_killed or child.process.why_lost
        how = finalize.describe_exit(returncode)
        self._fail_ready(child, ChildBroken(f"{child.name} (pid {child.pid}) {how} before it was ready"))
        expected = returncode == 0 and (self._closing or child.is_retiring)
        events.emit("child.ended", expected=expected)
        if not expected:
            # The shutdown has said that it interrupts tasks.
            is_our_end = self._closing or (child.is_killed and not self.is_replacing)
            level = logging.DEBUG if is_our_end else logging.WARNING
            why = "" if child.remark is None else f": {child.remark}"
            log.log(level, "child process %s %s%s", child.name, how, why, extra={"horsies": {"pid": child.pid}})
            if child.is_ready and monotonic() - child.born < YOUNG_S and child.assigned == 0:
                self._deaths_in_a_row += 1
        self._on_death(child, how)
        self._vacancies.set()
        self._on_change()


def _names(info: dict[str, object], key: str) -> list[str]:
    names = info.get(key)
    return [str(name) for name in names] if isinstance(names, list) else []


@dataclass(eq=False)
class Child:
    """One child process and its tasks."""

    process: launcher.ChildProcess
    born: float = field(default_factory=monotonic)
    link: Link | None = None
    line: deque[in_hand.HeldTask] = field(default_factory=deque)  # RUNNING, not handed over yet
    fed: dict[int, in_hand.HeldTask] = field(default_factory=dict)  # handed over, by token, in order
    starting: set[in_hand.HeldTask] = field(default_factory=set)  # assigned to it, the start statement under way
    reserved: int = 0  # seats for tasks that a claim is just making RUNNING
    assigned: int = 0  # in all its life
    pace_ms: float | None = None
    ahead: int = 0  # how many tasks may lie before it beyond those it has slots for
    slow: in_hand.HeldTask | None = None  # the last one placed here that is not known to be short (W-25a)
    rss_mb: float = 0.0
    first_rss_mb: float = 0.0
    last_heard: float = field(default_factory=monotonic)
    is_ready: bool = False
    task_names: frozenset[str] = frozenset()
    is_traced: bool = False  # it has OpenTelemetry loaded, and wants to know what its tasks belong to
    is_retiring: bool = False
    is_dead: bool = False
    broken_link: str | None = None
    may_run_until: float = 0.0  # unless another message of ours extends it
    is_killed: bool = False  # by us, with the fork server, or by itself: its tasks are not the cause
    why_killed: str | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def load(self) -> int:
        return len(self.line) + len(self.fed) + len(self.starting) + self.reserved

    @property
    def has_sync(self) -> bool:
        """Whether it has a task that needs the whole child (W-30a)."""
        return any(not held.is_async for held in (*self.fed.values(), *self.line, *self.starting))

    def account(self, how: str) -> str:
        """How it ended, with what is known about that."""
        facts = [self.remark] if self.remark else []
        if self.process.peak_rss_kb:
            facts.append(f"peak memory {self.process.peak_rss_kb / 1024:.0f} MB")
        return f"it {how} ({', '.join(facts)})" if facts else f"it {how}"

    @property
    def remark(self) -> str | None:
        """What we know about its end in addition to its exit code."""
        return self.why_killed or self.broken_link

    def slots(self, concurrency: int) -> int:
        """How many tasks it can run at once."""
        return 1 if concurrency == 1 or self.has_sync else concurrency

    def started_tasks(self) -> list[in_hand.HeldTask]:
        return [held for held in self.fed.values() if held.phase is in_hand.Phase.STARTED]

    def write(self, data: bytes) -> None:
        if self.link is not None:
            self.link.write(data)

    def note_run(self, run_ms: float, rss_kb: int) -> None:
        self.pace_ms = pace.pace(self.pace_ms, run_ms)
        self.rss_mb = rss_kb / 1024


def reserve(children: Sequence[Child], most: int, max_tasks: int) -> list[int]:
    """Reserve up to so many places for tasks that are not known yet, where `Dispatcher.place` would put short ones:
    first one in each idle child, then behind those, as far as they may run ahead. The children count from 1."""
    seats: list[int] = []
    heap = [(child.load, number) for number, child in enumerate(children, 1)]
    heapify(heap)
    while heap and len(seats) < most:
        load, number = heap[0]
        child = children[number - 1]
        if load > child.ahead or 0 < max_tasks <= child.assigned + child.reserved:
            heappop(heap)
            continue
        child.reserved += 1
        seats.append(number)
        heapreplace(heap, (load + 1, number))
    return seats


class Link:
    """The supervisor's end of a child's socket. `on_frames` gets what arrived, `on_broken` the reason why nothing more
    will."""

    def __init__(
        self, sock: socket.socket, on_frames: Callable[[list[Frame]], None], on_broken: Callable[[str], None]
    ) -> None:
        self._sock = sock
        self._on_frames = on_frames
        self._on_broken = on_broken
        self._decoder = Decoder()
        self._outgoing = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)
        self._open = True
        self._is_deaf = False

    def write(self, data: bytes) -> None:
        """Send what fits now, and the rest when the child has read more."""
        if not self._open or self._is_deaf:
            return
        if not self._outgoing:
            try:
                data = data[self._sock.send(data) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as problem:
                self._cannot_write(str(problem))
                return
            if not data:
                return
            self._loop.add_writer(self._sock.fileno(), self._writable)
        self._outgoing += data

    def drain(self) -> None:
        """Read what a dead child has left. It never waits for the end of the stream, because a grandchild may keep it
        open."""
        while self._open and self._read():
            pass

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()

    def _readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        try:
            data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as problem:
            self._break(str(problem))
            return False
        if not data:
            self._break("the child closed its socket")
            return False
        try:
            frames = self._decoder.feed(data)
        except WireError as problem:
            self._break(str(problem))
            return False
        if frames:
            self._on_frames(frames)
        return True

    def _writable(self) -> None:
        try:
            del self._outgoing[: self._sock.send(self._outgoing)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self._cannot_write(str(problem))
            return
        if not self._outgoing:
            self._loop.remove_writer(self._sock.fileno())

    def _cannot_write(self, why: str) -> None:
        """The child no longer reads. What it wrote before must still be read, so the socket stays open."""
        self._is_deaf = True
        self._outgoing.clear()
        self._loop.remove_writer(self._sock.fileno())
        self._on_broken(why)

    def _break(self, why: str) -> None:
        if self._open:
            self.close()
            self._on_broken(why)
