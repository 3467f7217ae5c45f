"""`/metrics`, `/healthz` and `/readyz`, for every process that has something to show. `/healthz` says that the process
is alive and its loop runs: the answer itself is the proof. `/readyz` says whether the process does its work, with 503
and the reasons if it does not. Both are JSON.

They are served by a small HTTP server on the loop of the process that starts it: a few fixed paths, GET only, one
request for each connection, without bodies. Everything is bounded (the size of a request, its time, the number of
connections), so a client of the port can only read what is offered. Each path has its own places, so that requests for
metrics that wait for the database never keep a probe from its answer.
"""

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from horsies.core.db import cancel_all
from horsies.core.distribution import pip_install
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.monitoring import metrics, snapshot

log = logging.getLogger("horsies.http")
MOST_REQUESTS = 32  # that are answered at the same time, for each path
MOST_SILENT = 128  # connections that have not sent a request yet
LARGEST_HEAD = 8 << 10
REQUEST_S = 5.0  # a request must arrive within this time
ANSWER_S = 15.0  # the answer must be made within this time, and then be read within it
LOOK_AGAIN_S = 1.0  # the same text is served for this time
METHODS = ("GET", "HEAD")
TEXT = "text/plain; charset=utf-8"
Problems: TypeAlias = Callable[[], Awaitable[dict[str, str]]]
Own: TypeAlias = Callable[[], Awaitable[Iterable[metrics.Family]]]
Encode: TypeAlias = Callable[[Iterable[metrics.Family], str], tuple[bytes, str]]


class Response(NamedTuple):
    """What is sent back."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Route: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Response]]


def encoder() -> Encode:
    """The function that encodes metric families for the accepted types. Without the extra, it raises an error that says
    what to install."""
    try:
        from horsies.core.monitoring.prometheus import encode
    except ImportError:
        raise ConfigurationError(
            "metrics need the package prometheus-client, which is not installed",
            code=ErrorCode.CLI_INVALID_ARGS,
            help_text=pip_install("metrics"),
        ) from None
    return encode


class Endpoints:
    """`problems` says why the process is not ready, `own` what the process counts itself."""

    def __init__(
        self, host: str, port: int, reader: snapshot.Reader, problems: Problems, own: Own | None = None
    ) -> None:
        self._reader = reader
        self._problems = problems
        self._own = own
        self._encode = encoder()
        self._began = monotonic()
        self._texts: dict[str, tuple[float, Response]] = {}
        self._encoding = asyncio.Lock()
        routes = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._server = HttpServer(host, port, routes)

    async def open(self) -> None:
        await self._server.open()

    @property
    def url(self) -> str:
        return self._server.url

    async def close(self) -> None:
        await self._server.close()

    async def _healthz(self, _headers: Mapping[str, str]) -> Response:
        return json_answer({"status": "alive", "seconds": round(monotonic() - self._began, 3)})

    async def _readyz(self, _headers: Mapping[str, str]) -> Response:
        reasons = await self._problems()
        return json_answer({"status": "not ready" if reasons else "ready", "reasons": reasons}, is_well=not reasons)

    async def _metrics(self, headers: Mapping[str, str]) -> Response:
        accept = "openmetrics" if "application/openmetrics-text" in headers.get("accept", "") else ""
        async with self._encoding:
            made, answer = self._texts.get(accept, (0.0, None))
            if answer is None or monotonic() - made >= LOOK_AGAIN_S:
                answer = await self._encoded("application/openmetrics-text" if accept else "")
                self._texts[accept] = (monotonic(), answer)
            return answer

    async def _encoded(self, accept: str) -> Response:
        families = list(metrics.of_reading(await self._reader.reading()))
        if self._own is not None:
            families += await self._own()
        # The text is made in a thread, so that the loop is free for other work.
        return Response(*await asyncio.to_thread(self._encode, families, accept))


def json_answer(content: Mapping[str, Any], *, is_well: bool = True) -> Response:
    """JSON, with 200 or 503."""
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(json.dumps(content, indent=1).encode() + b"\n", "application/json", status)


class HttpServer:
    """Serves the paths of `routes`; each route gets the headers of the request, with their names in lower case."""

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        self._host = host
        self._port = port
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        # Connections without a complete request, oldest first.
        self._unsaid: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._asked: Counter[str] = Counter()  # requests that are being answered, by path

    async def open(self) -> None:
        """Start to listen. A port that cannot be used is a `ConfigurationError`."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=LARGEST_HEAD, backlog=MOST_SILENT
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
        if task is None:
            writer.transport.abort()
            return
        self._make_room()
        self._serving.add(task)
        self._unsaid[task] = writer
        try:
            await self._serve(reader, writer, asked=lambda: self._unsaid.pop(task, None))
        except (OSError, TimeoutError, EOFError):
            pass  # the client went away or took too long
        except Exception:
            log.exception("a request failed")
        finally:
            self._serving.discard(task)
            self._unsaid.pop(task, None)
            if not writer.is_closing():
                writer.transport.abort()

    def _make_room(self) -> None:
        """A client that has connected and sends nothing must make room; otherwise a few idle connections would block
        the probes."""
        if len(self._unsaid) >= MOST_SILENT:
            oldest = next(iter(self._unsaid))
            self._unsaid.pop(oldest).transport.abort()  # this also ends its task

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asked: Callable[[], object]
    ) -> None:
        """`asked` is called when the request has arrived."""
        method, path = "", ""
        headers: dict[str, str] = {}
        is_request = True
        try:
            async with asyncio.timeout(REQUEST_S):
                method, path, headers = _request(await reader.readuntil(b"\r\n\r\n"))
        except (asyncio.LimitOverrunError, ValueError):
            is_request = False
        asked()
        path = path.partition("?")[0]
        with self._place_for(path) as is_free:
            if not is_request:
                answer = _plain(HTTPStatus.BAD_REQUEST)
            elif not is_free:
                answer = _plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests for this path at the same time")
            else:
                answer = await self._answer(method, path, headers)
            writer.write(_head(answer) + (b"" if method == "HEAD" else answer.body))
            if not is_free:
                writer.close()  # it waits for nothing, because nothing limits how many come
                return
            async with asyncio.timeout(ANSWER_S):
                await writer.drain()
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    @contextlib.contextmanager
    def _place_for(self, path: str) -> Iterator[bool]:
        """Whether there is a place for one more request of this path; paths that do not exist share theirs."""
        kind = path if path in self._routes else ""
        is_free = self._asked[kind] < MOST_REQUESTS
        self._asked[kind] += is_free
        try:
            yield is_free
        finally:
            self._asked[kind] -= is_free

    async def _answer(self, method: str, path: str, headers: Mapping[str, str]) -> Response:
        if method not in METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        route = self._routes.get(path)
        if route is None:
            return _plain(HTTPStatus.NOT_FOUND, f"known paths: {', '.join(self._routes)}")
        try:
            async with asyncio.timeout(ANSWER_S):
                return await route(headers)
        except TimeoutError:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "it took too long")
        except Exception:
            log.exception("the answer to %s could not be made", path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _request(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers. `ValueError` if it is not a request."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    pairs = (line.partition(":") for line in lines if line)
    return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _head(answer: Response) -> bytes:
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


def _plain(status: HTTPStatus, more: str = "") -> Response:
    return Response(f"{status.phrase}{': ' if more else ''}{more}\n".encode(), TEXT, status)
