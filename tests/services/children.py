"""Plays the supervisor of one child over its socket: hand it tasks, hear its reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psutil

from horsies.core.child import wire
from horsies.core.child.wire import ChildSpec, Decoder, Done, Frame, Kind
from horsies.core.tasks.context import packed
from horsies.core.worker.launcher import ChildProcess, Launcher

PATIENCE = 20.0
APP = "tests.services.child_app:app"
ROOT = str(Path(__file__).parents[2])


class Child:
    """A child as its supervisor sees it. Frames are taken in the order they came."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process
        self.pid = process.pid
        self.frames: list[Frame] = []
        self._decoder = Decoder()
        self._tokens = iter(range(1, 1 << 62))

    def tell(self, *frames: bytes) -> None:
        """All at once, so that the child finds them together. For frames that fit the socket's buffer."""
        data = b"".join(frames)
        assert self.process.sock.send(data) == len(data)

    def run(self, name: str, *args: Any, **kwargs: Any) -> int:
        token, frame = self.order(name, *args, **kwargs)
        self.tell(frame)
        return token

    def order(self, name: str, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        """A RUN frame that is not sent yet."""
        token = next(self._tokens)
        given = json.dumps(args).encode() if args else b"", json.dumps(kwargs).encode() if kwargs else b""
        facts = packed(f"task-{token}", 1, 1, "default")
        return token, wire.pack(Kind.RUN, token, name.encode(), *given, b"", facts)

    def stop(self, token: int) -> None:
        self.tell(wire.pack(Kind.STOP, token, b"test"))

    def bye(self) -> None:
        self.tell(wire.pack(Kind.BYE, 0))

    async def hear(self) -> Frame:
        """The next frame."""
        while not self.frames:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.process.sock, 1 << 18), PATIENCE)
            if not data:
                raise EOFError
            self.frames += self._decoder.feed(data)
        return self.frames.pop(0)

    async def hear_all(self) -> list[Frame]:
        """Everything that comes until the child closes its end."""
        heard = []
        while True:
            try:
                heard.append(await self.hear())
            except (EOFError, ConnectionResetError):
                return heard

    async def ready(self) -> dict[str, Any]:
        kind, _, parts = await self.hear()
        assert kind is Kind.READY, parts
        info: dict[str, Any] = json.loads(parts[0])
        return info

    async def started(self, token: int) -> None:
        kind, number, _ = await self.hear()
        assert (kind, number) == (Kind.STARTED, token)

    async def done(self, token: int) -> Done:
        """The report of a task, whose STARTED may come first; beats are passed over."""
        while True:
            kind, number, parts = await self.hear()
            if kind is Kind.DONE:
                assert number == token
                return wire.done_of(parts)
            assert kind is Kind.BEAT or (kind, number) == (Kind.STARTED, token), kind

    async def answer(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a task to its end, for the value of its success."""
        return value_of(await self.done(self.run(name, *args, **kwargs)))

    async def code(self) -> int:
        """How the process ended."""
        return await asyncio.wait_for(asyncio.shield(self.process.exited), PATIENCE)


_started: WeakKeyDictionary[Launcher, list[Child]] = WeakKeyDictionary()


async def start_child(launcher: Launcher, locator: str = APP, *, name: str = "horsies-child-1", **spec: Any) -> Child:
    given = {"cwd": ROOT, "sys_path": (ROOT, *ChildSpec("").sys_path), **spec}
    child = Child(await launcher.spawn(ChildSpec(locator, **given), name))
    _started.setdefault(launcher, []).append(child)
    return child


async def end_children(launcher: Launcher) -> None:
    """Kill what a test has left running."""
    for child in _started.pop(launcher, []):
        child.process.kill_group()
        await child.code()
        child.process.sock.close()


def value_of(done: Done) -> Any:
    assert done.ok, done
    return json.loads(done.result)["ok"]


def error_of(done: Done) -> Any:
    assert not done.ok, done
    return json.loads(done.result)["err"]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int) -> Iterator[psutil.Process]:
    yield from psutil.Process(pid).children(recursive=True)


def read_pid(path: Path) -> int:
    """Written by a task; 0 as long as it is not there."""
    text = path.read_text() if path.exists() else ""
    return int(text or 0)
