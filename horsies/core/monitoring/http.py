"""A small HTTP server for scrapes and probes: a few fixed paths, GET only, on the loop of the process that starts it.

It is not a web server: it serves one request for each connection, without bodies, and everything is bounded (the size
of a request, its time, the number of connections). So a client of the port can only read what is offered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

from horsies.core.brokers.cancelling import cancel_all
from horsies.core.errors import ConfigurationError, ErrorCode

log = logging.getLogger("horsies.http")

MOST_CONNECTIONS = 32
LARGEST_HEAD = 8 << 10
REQUEST_S = 5.0  # for the request to arrive
ANSWER_S = 15.0  # for the answer to be made, and again for it to be taken
METHODS = ("GET", "HEAD")
TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What is sent back."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Route: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Answer]]


def json_answer(content: Mapping[str, Any], *, is_well: bool = True) -> Answer:
    """JSON, with 200 or 503."""
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(json.dumps(content, indent=1).encode() + b"\n", "application/json", status)


class HttpServer:
    """Serves the paths of `routes`; each route gets the headers of the request, with their names in lower case."""

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        self._host = host
        self._port = port
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self._unsaid: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}  # whose request is not complete, oldest first

    async def open(self) -> None:
        """Start to listen. A port that cannot be used is a `ConfigurationError`."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=LARGEST_HEAD, backlog=MOST_CONNECTIONS
            )
        except OSError as problem:
            where = f"{self._host}:{self._port}"
            raise ConfigurationError(
                f"cannot listen on {where}: {problem.strerror or problem}",
                code=ErrorCode.CLI_INVALID_ARGS,
                help_text="another process may use the port; give each process its own",
            ) from None

    @property
    def url(self) -> str:
        """Where it listens, with the real port even if any port was requested."""
        sockets = self._server.sockets if self._server is not None else ()
        port = sockets[0].getsockname()[1] if sockets else self._port
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening; open requests are ended."""
        if self._server is not None:
            self._server.close()
            await cancel_all(list(self._serving))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or not self._has_room():
            writer.transport.abort()
            return
        self._serving.add(task)
        self._unsaid[task] = writer
        try:
            await self._serve(reader, writer, asked=lambda: self._unsaid.pop(task, None))
        except (OSError, TimeoutError, EOFError):
            pass  # it went away, or took too long
        except Exception:
            log.exception("a request failed")
        finally:
            self._serving.discard(task)
            self._unsaid.pop(task, None)
            if not writer.is_closing():
                writer.transport.abort()

    def _has_room(self) -> bool:
        """A client that has connected and sends nothing must make room; otherwise a few idle connections would block
        the probes."""
        if len(self._serving) < MOST_CONNECTIONS:
            return True
        if not self._unsaid:
            return False
        oldest = next(iter(self._unsaid))
        self._serving.discard(oldest)
        self._unsaid.pop(oldest).transport.abort()  # which ends its task
        return True

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asked: Callable[[], object]
    ) -> None:
        """`asked` is called when the request has arrived."""
        method = ""
        try:
            async with asyncio.timeout(REQUEST_S):
                method, path, headers = _request(await reader.readuntil(b"\r\n\r\n"))
        except (asyncio.LimitOverrunError, ValueError):
            asked()
            answer = _plain(HTTPStatus.BAD_REQUEST)
        else:
            asked()
            answer = await self._answer(method, path, headers)
        async with asyncio.timeout(ANSWER_S):
            writer.write(_head(answer) + (b"" if method == "HEAD" else answer.body))
            await writer.drain()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        if method not in METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        route = self._routes.get(path.partition("?")[0])
        if route is None:
            return _plain(HTTPStatus.NOT_FOUND, f"known paths: {', '.join(self._routes)}")
        try:
            async with asyncio.timeout(ANSWER_S):
                return await route(headers)
        except TimeoutError:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "it took too long")
        except Exception:
            log.exception("the answer to %s could not be made", path.partition("?")[0])
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _request(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers. `ValueError` if it is not a request."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    pairs = (line.partition(":") for line in lines if line)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _head(answer: Answer) -> bytes:
    status = answer.status
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *([f"Allow: {', '.join(METHODS)}"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode("latin-1")


def _plain(status: HTTPStatus, more: str = "") -> Answer:
    return Answer(f"{status.phrase}{': ' if more else ''}{more}\n".encode(), TEXT, status)
