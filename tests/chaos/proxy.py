"""A socket between one worker and the server. It can refuse, keep everything back in both directions, or let through
what the worker says and lose the answers; then what was done is not known to have been done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

CHUNK = 65_536


class Proxy:
    """Listens in a directory of its own, so that a URL needs only another host."""

    def __init__(self, directory: Path, server: Callable[[], Path]) -> None:
        self._directory = directory
        self._server = server
        self._listening: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._is_refusing = False

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/horsies?host={quote(str(self._directory), safe='/')}&port=5432"

    async def start(self) -> None:
        self._directory.mkdir()
        self._listening = await asyncio.start_unix_server(self._serve, self._directory / ".s.PGSQL.5432")
        self.heal()

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
        self.heal()
        self._abort()
        await asyncio.sleep(0)

    def refuse(self) -> None:
        """Every connection ends, and new ones end at once."""
        self._is_refusing = True
        self._abort()

    def freeze(self) -> None:
        """Nothing comes through, and nobody is told."""
        self._up.clear()
        self._down.clear()

    def deafen(self) -> None:
        """What the worker says comes through; it does not hear the answers."""
        self._down.clear()

    def heal(self, *, cuts: bool = False) -> None:
        """As before. With `cuts`, connections that were held up end, and what they held is lost."""
        self._is_refusing = False
        if cuts:
            self._abort()
        self._up.set()
        self._down.set()

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._writers.add(writer)
        try:
            if self._is_refusing:
                return
            upstream, upward = await asyncio.open_unix_connection(self._server())
            ends.append(upward)
            self._writers.add(upward)
            pumps = {
                asyncio.create_task(self._pump(reader, upward, self._up)),
                asyncio.create_task(self._pump(upstream, writer, self._down)),
            }
            _, waiting = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in waiting:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the server is away: so it is for the worker
        finally:
            for end in ends:
                self._writers.discard(end)
                end.close()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await end.wait_closed()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK):
                await gate.wait()
                target.write(data)
                await target.drain()
            await gate.wait()  # the end is held back, too
