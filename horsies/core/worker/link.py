"""The connection between the supervisor and one child: frames in, frames out, and what is left in the socket after its
death.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from horsies.core.worker.wire import Decoder, Frame, WireError

READ_BYTES = 1 << 18


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
