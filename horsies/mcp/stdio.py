"""The line to the agent: standard input and output, which carry the protocol and nothing else (X-41).

Modules of the user print when they are imported, and so do libraries and child processes. So the two descriptors are
taken away before anything is imported: descriptor 1 becomes standard error, and descriptor 0 is empty. The SDK reads
and writes in threads that cannot be stopped; here they can be left alone, so that a signal ends the program at once. It
drops a line that it cannot read, and the agent would wait for an answer, so these lines are answered here. And it drops
the calls that are under way when its input ends, so it hears of the end only after they are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import select
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from horsies.mcp.tools import LONGEST_CALL_S

MOST_WAITING = 100  # lines that have been read and not taken
LAST_ANSWERS_S = LONGEST_CALL_S + 5  # after the end of input; a call that takes too long is refused before that
LAST_WRITES_S = 2.0  # after that, for an agent that does not read
LOOK_S = 0.02  # how often it is looked whether all is answered
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
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage]()
        talk = _Talk(_Lines(self.reader), self.writer)
        async with anyio.create_task_group() as group:
            group.start_soon(talk.hear, to_server)
            group.start_soon(talk.answer, from_server)
            yield incoming, outgoing
            group.cancel_scope.deadline = anyio.current_time() + LAST_WRITES_S


class _Talk:
    """Hands the messages of the agent to the server, and the server's to the agent; knows what is not answered yet."""

    def __init__(self, lines: _Lines, writer: BinaryIO) -> None:
        self._lines = lines
        self._writer = writer
        self._unanswered: Counter[RequestId] = Counter()

    async def hear(self, server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with server:
            async for line in self._lines:
                if isinstance(message := message_or_refusal(line), str):
                    await self._write(message)
                    continue
                self._note(message)
                await server.send(SessionMessage(message))
            await self._last_answers()

    async def answer(self, server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with server:
            async for said in server:
                await self._write(said.message.model_dump_json(by_alias=True, exclude_unset=True))
                if isinstance(said.message, JSONRPCResponse | JSONRPCError) and said.message.id is not None:
                    self._settle(said.message.id)

    def _note(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._unanswered[message.id] += 1
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))  # the protocol forbids an answer to it

    def _settle(self, asked: Any) -> None:
        with contextlib.suppress(TypeError):  # a cancellation of something that cannot be an id
            self._unanswered -= Counter([asked])

    async def _last_answers(self) -> None:
        """Wait until everything is answered that was asked, unless nobody reads it any more."""
        reader_gone = select.poll()
        reader_gone.register(self._writer, 0)  # only what is always told: the other end is closed
        with anyio.move_on_after(LAST_ANSWERS_S):
            while self._unanswered and not reader_gone.poll(0):
                await anyio.sleep(LOOK_S)

    async def _write(self, text: str) -> None:
        """An agent that does not read keeps a thread waiting, which is left alone at the end."""
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        await anyio.to_thread.run_sync(self._write_now, data, abandon_on_cancel=True)

    def _write_now(self, data: bytes) -> None:
        self._writer.write(data)
        self._writer.flush()


class _Lines:
    """The lines of a stream. A thread reads them that nobody waits for: it ends with the stream or the process."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
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
        if (line := await self._read.get()) is None:
            raise StopAsyncIteration
        self._room.release()
        return line


def message_or_refusal(line: str) -> JSONRPCMessage | str:
    """A message; or the answer to a line that is none, with the id of the request if it has one."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
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
    return json.dumps({"jsonrpc": "2.0", "id": known, "error": error})
