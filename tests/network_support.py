"""The network between a worker and its database, as something that a test can cut: a proxy of the server's socket."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

# The messages of the protocol that bring the text of a statement, and that run one that was brought before.
PARSE = re.compile(rb"P.{4}(_pg3_\w+)\x00([^\x00]+)", re.DOTALL)
BIND = re.compile(rb"B.{4}\x00(_pg3_\w+)\x00", re.DOTALL)


class Network:
    """`url` leads through here. `cut` ends every connection and refuses new ones; `freeze` lets nothing through and
    says nothing about it, as when a cable is pulled; `mend` ends both."""

    def __init__(self, url: str) -> None:
        there = conninfo_to_dict(url)
        self._host, self._port = str(there["host"]), str(there.get("port", "5432"))
        self._name = f".s.PGSQL.{self._port}"
        self._place = Path(tempfile.mkdtemp(prefix="hsn-"))
        user = urlsplit(url).netloc.rpartition("@")[0]
        query = f"host={self._place}&port={self._port}"
        self.url = urlunsplit(urlsplit(url)._replace(netloc=f"{user}@", query=query))
        self.whole = asyncio.Event()
        self.whole.set()
        self.traps: dict[bytes, tuple[bool, asyncio.Event]] = {}
        self.statements: list[str] = []  # that the server was told to run
        self._is_cut = False
        self._lines: set[Line] = set()

    async def server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/{self._name}")
        return await asyncio.open_connection(self._host, int(self._port))

    async def open(self) -> None:
        self._listening = await asyncio.start_unix_server(self._connected, self._place / self._name)

    async def close(self) -> None:
        self._listening.close()
        self.cut()
        shutil.rmtree(self._place)

    def cut(self) -> None:
        self._is_cut = True
        for line in list(self._lines):
            line.end()

    def freeze(self) -> None:
        self.whole.clear()

    def mend(self) -> None:
        self._is_cut = False
        self.whole.set()

    def cut_at(self, text: str, *, is_heard: bool) -> asyncio.Event:
        """Cut it when a statement with this text is sent. With `is_heard` it is done, and only its answer is lost."""
        cut = asyncio.Event()
        self.traps[text.encode()] = (is_heard, cut)
        return cut

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        line = Line(self, reader, writer)
        self._lines.add(line)
        try:
            await line.carry()
        finally:
            line.end()
            self._lines.discard(line)


class Statements:
    """Reads what a client sends, message by message: a letter, the length of the rest, the rest. The first one opens
    the session and has no letter. `feed` returns the statements that are to be run now."""

    def __init__(self) -> None:
        self._open = bytearray(b"-")
        self._texts: dict[bytes, str] = {}  # by the names of prepared statements
        self._bound = ""

    def feed(self, data: bytes) -> list[str]:
        self._open += data
        run: list[str] = []
        while len(self._open) >= 5 and len(self._open) > (length := int.from_bytes(self._open[1:5])):
            letter, rest = chr(self._open[0]), bytes(self._open[5 : length + 1])
            del self._open[: length + 1]
            first, _, behind = rest.partition(b"\0")
            second = behind.partition(b"\0")[0]
            if letter == "P":
                self._texts[first] = second.decode()
            elif letter == "B":
                self._bound = self._texts.get(second, "")
            elif letter in "EQ":
                run.append(self._bound if letter == "E" else first.decode())
        return run


class Line:
    """One connection, both ways."""

    def __init__(self, network: Network, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._network = network
        self._reader, self._writer = reader, writer
        self._server: asyncio.StreamWriter | None = None
        self._cut_at_answer: asyncio.Event | None = None
        self._statements = Statements()
        self._prepared: dict[bytes, bytes] = {}  # statements by the names that psycopg gives them

    async def carry(self) -> None:
        await self._network.whole.wait()
        with contextlib.suppress(OSError):
            reader, self._server = await self._network.server()
            there = asyncio.create_task(self._ask(self._server))
            await self._answer(reader)
            there.cancel()

    def end(self) -> None:
        for writer in (self._writer, self._server):
            if writer is not None:
                writer.transport.abort()

    async def _ask(self, server: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await self._reader.read(1 << 16):
                await self._network.whole.wait()
                self._network.statements += self._statements.feed(data)
                if (trap := self._trap_in(data)) is not None:
                    is_heard, cut = trap
                    if not is_heard:
                        self._network.cut()
                        cut.set()
                        return
                    self._cut_at_answer = cut
                server.write(data)
                await server.drain()
        server.transport.abort()

    def _trap_in(self, data: bytes) -> tuple[bool, asyncio.Event] | None:
        self._prepared |= dict(PARSE.findall(data))
        said = data + b"".join(self._prepared.get(name, b"") for name in BIND.findall(data))
        found = [text for text in self._network.traps if text in said]
        return self._network.traps.pop(found[0]) if found else None

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            await self._network.whole.wait()
            if self._cut_at_answer is not None:
                self._network.cut()
                self._cut_at_answer.set()
                return
            self._writer.write(data)
            await self._writer.drain()


@contextlib.asynccontextmanager
async def network(url: str) -> AsyncIterator[Network]:
    """A network of its own to the database of this URL."""
    built = Network(url)
    await built.open()
    try:
        yield built
    finally:
        await built.close()
