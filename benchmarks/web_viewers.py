"""People who look at a dashboard, as a program: each opens a page and its stream of events, and refreshes the page when
an event concerns it, as `horsies.js` does: never two at a time, and not before the server's pause is over.

Run as `python -m benchmarks.web_viewers URL PATH …`, one viewer for each path. It says when all of them
listen and, when it gets a line, what they did. It only speaks as much HTTP as it needs, so that it costs next to
nothing itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks import ROOT
from benchmarks.processes import Failed
from horsies.dev.program import Program, ready_signal

FIRST_PAUSE_S = 1.0
READY_S = 60.0
ENDED_S = 30.0
_DATA = re.compile(rb'data-(topics|poll)="([^"]*)"')


class Page(NamedTuple):
    """What a refresh tells its viewer."""

    status: int
    pause_s: float
    topics: frozenset[str]
    poll_s: float


@dataclass
class Watched:
    """What all viewers did together; `statuses` of all answers that were not 200."""

    events: int = 0
    refreshes: int = 0
    took_s: float = 0.0
    statuses: list[int] = field(default_factory=list)


class Viewer:
    """One person with one page."""

    def __init__(self, address: tuple[str, int], path: str, watched: Watched) -> None:
        self._address = address
        self._path = path
        self._watched = watched
        self._wanted = asyncio.Event()
        self._page = Page(0, FIRST_PAUSE_S, frozenset(), 0.0)
        self.listens = asyncio.Event()

    async def look(self) -> None:
        """Until it is cancelled."""
        self._page = await self._load(is_refresh=False)
        async with asyncio.TaskGroup() as doing:
            doing.create_task(self._listen())
            doing.create_task(self._refresh())
            doing.create_task(self._poll())

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(request(self._address, "/api/events", Accept="text/event-stream"))
        async for line in reader:
            if line.startswith(b": listening"):
                self.listens.set()
            elif line.startswith(b"data: "):
                self._watched.events += 1
                if json.loads(line.removeprefix(b"data: "))["topic"] in self._page.topics:
                    self._wanted.set()
        raise Failed("a stream of events has ended")

    async def _refresh(self) -> None:
        last = time.monotonic()
        while True:
            await self._wanted.wait()
            await asyncio.sleep(max(0.0, last + self._page.pause_s - time.monotonic()))
            self._wanted.clear()
            last = time.monotonic()
            self._page = await self._load(is_refresh=True)
            self._watched.refreshes += 1
            self._watched.took_s += time.monotonic() - last

    async def _poll(self) -> None:
        while self._page.poll_s:
            await asyncio.sleep(self._page.poll_s)
            self._wanted.set()

    async def _load(self, *, is_refresh: bool) -> Page:
        """On a connection of its own, because the server does not keep one for longer than a few seconds."""
        reader, writer = await asyncio.open_connection(*self._address)
        more = {"X-Horsies-Refresh": "1"} if is_refresh else {}
        writer.write(request(self._address, self._path, Accept="text/html", Connection="close", **more))
        head = await reader.readuntil(b"\r\n\r\n")
        found = headers_of(head)
        body = await reader.readexactly(int(found.get("content-length", "0")))
        writer.close()
        status = int(head.split(b" ", 2)[1])
        if status != 200:
            self._watched.statuses.append(status)
        pause_s = float(found.get("x-horsies-wait", "0")) / 1000 or self._page.pause_s
        return Page(status, pause_s, *data_of(body))


def request(address: tuple[str, int], path: str, **headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


def data_of(body: bytes) -> tuple[frozenset[str], float]:
    """What a page says about itself: the topics that concern it, and how often it refreshes without them."""
    data = {name.decode(): value.decode() for name, value in _DATA.findall(body)}
    return frozenset(data.get("topics", "").split()), float(data.get("poll") or 0)


def headers_of(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def watch(url: str, paths: Sequence[str]) -> Watched:
    """All of them, until a line on standard input says that it is enough."""
    say_ready = ready_signal()
    parts = urlsplit(url)
    watched = Watched()
    viewers = [Viewer((parts.hostname or "", parts.port or 80), path, watched) for path in paths]
    looking = asyncio.ensure_future(asyncio.gather(*(viewer.look() for viewer in viewers)))
    listening = asyncio.ensure_future(asyncio.gather(*(viewer.listens.wait() for viewer in viewers)))
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    await asyncio.wait((looking, listening), return_when=asyncio.FIRST_COMPLETED)
    say_ready()
    before = watched.events, watched.refreshes
    await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
    if looking.done():
        looking.result()
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking
    watched.events, watched.refreshes = watched.events - before[0], watched.refreshes - before[1]
    return watched


@contextmanager
def watching(url: str, paths: Sequence[str]) -> Iterator[Watched]:
    """The same program beside this one; what it did is there when the block has ended."""
    found, printed = Watched(), list[str]()
    command = [sys.executable, "-m", "benchmarks.web_viewers", url, *paths]
    with Program(command, cwd=ROOT, output=printed.append, says_ready=True, has_input=True) as program:
        program.wait_until_ready(READY_S)
        yield found
        program.write("enough\n")
        code = program.wait(ENDED_S)
    if code != 0:
        raise Failed("\n".join([f"the viewers ended with {code}:", *printed]))
    for name, value in json.loads(printed[-1]).items():
        setattr(found, name, value)


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(watch(sys.argv[1], sys.argv[2:])))))
