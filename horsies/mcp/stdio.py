"""The line to the agent: standard input and output, which carry the protocol and nothing else (X-41).

Modules of the user print when they are imported, and so do libraries and child processes. So the two descriptors are
taken away before anything is imported: descriptor 1 becomes standard error, and descriptor 0 is empty. The SDK reads
and writes in threads that cannot be stopped; here they can be left alone, so that a signal ends the program at once. It
drops a line that it cannot read, and the agent would wait for an answer, so these lines are answered here.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

import anyio.to_thread
from mcp.server.stdio import stdio_server
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError

MOST_WAITING = 100  # lines that have been read and not answered
PARSE_ERROR, INVALID_REQUEST = -32700, -32600


class Wire:
    """Where the protocol is read and written."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    def take(cls) -> Wire:
        """Take standard input and output away from everybody else in this process."""
        sys.stdout.flush()
        reader, writer = os.dup(0), os.dup(1)  # not inherited by other programs
        os.dup2(2, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # it is a log now
        return cls(os.fdopen(reader, "rb"), os.fdopen(writer, "wb"))

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """For the SDK: messages that come in, and messages that go out."""
        out: Any = _Out(self.writer)
        lines: Any = _Lines(self.reader, out)
        async with stdio_server(lines, out) as streams:
            yield streams


class _Lines:
    """The lines of a stream that are messages; the others are refused. A thread reads them that nobody waits for: it
    ends with the stream or the process."""

    def __init__(self, stream: BinaryIO, out: _Out) -> None:
        self._stream = stream
        self._out = out
        self._loop = asyncio.get_running_loop()
        self._read: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(MOST_WAITING)
        threading.Thread(target=self._run, name="horsies mcp stdin", daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # the line or the loop is gone
            for line in self._stream:
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._read.put_nowait, line.decode("utf-8", "replace"))
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            self._loop.call_soon_threadsafe(self._read.put_nowait, None)

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        while (line := await self._read.get()) is not None:
            self._room.release()
            if (refusal := refusal_of(line)) is None:
                return line
            await self._out.write(refusal)
            await self._out.flush()
        raise StopAsyncIteration


def refusal_of(line: str) -> str | None:
    """The answer to a line that is no message of the protocol, with the id of the request if it has one."""
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
        return None
    except ValidationError as problem:
        said = problem.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        read, code = None, PARSE_ERROR
    else:
        code = INVALID_REQUEST
    asked = read.get("id") if isinstance(read, dict) else None
    known = asked if isinstance(asked, str | int) and not isinstance(asked, bool) else None
    error = {"code": code, "message": f"this line is no message of JSON-RPC 2.0 that can be read: {said}"}
    return json.dumps({"jsonrpc": "2.0", "id": known, "error": error}) + "\n"


class _Out:
    """Writes texts. An agent that does not read keeps a thread waiting, which is left alone at the end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    async def write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        await anyio.to_thread.run_sync(self._stream.write, data, abandon_on_cancel=True)

    async def flush(self) -> None:
        await anyio.to_thread.run_sync(self._stream.flush, abandon_on_cancel=True)
