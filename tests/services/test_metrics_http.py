"""The small HTTP server: it answers its few paths, and whoever can reach it cannot do more than that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from horsies.core.errors import ConfigurationError
from horsies.core.monitoring import http
from horsies.core.monitoring.http import HttpServer, Response, json_answer

HELLO = b"GET /hello HTTP/1.1\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(server: HttpServer) -> AsyncIterator[int]:
    await server.open()
    try:
        yield int(server.url.rpartition(":")[2])
    finally:
        await server.close()


async def say(port: int, request: bytes) -> bytes:
    """All that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def hello(headers: Mapping[str, str]) -> Response:
    return Response(f"hello {headers.get('user-agent')}".encode())


async def broken(_headers: Mapping[str, str]) -> Response:
    raise RuntimeError("password=secret")


async def unwell(_headers: Mapping[str, str]) -> Response:
    return json_answer({"status": "not ready"}, is_well=False)


def a_server() -> HttpServer:
    return HttpServer("127.0.0.1", 0, {"/hello": hello, "/broken": broken, "/unwell": unwell})


async def test_known_paths_are_answered_and_others_are_not() -> None:
    async with serving(a_server()) as port:
        answer = await say(port, b"GET /hello?x=1 HTTP/1.1\r\nUser-Agent: test\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nhello test")
        assert (await say(port, b"GET /other HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert (await say(port, b"GET /unwell HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
        head = await say(port, b"HEAD /hello HTTP/1.0\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"DELETE /hello HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /hello\r\n\r\n", b"400"),
        (b"\x16\x03\x01 not http at all\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nX: " + b"x" * (http.LARGEST_HEAD + 100) + b"\r\n\r\n", b"400"),
    ],
)
async def test_what_is_not_a_small_get_is_refused(request_: bytes, status: bytes) -> None:
    async with serving(a_server()) as port:
        assert (await say(port, request_)).startswith(b"HTTP/1.1 " + status)
        assert (await say(port, b"GET /hello HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 "), "and it goes on"


async def test_a_route_that_fails_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(a_server()) as port:
        answer = await say(port, b"GET /broken HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ") and b"secret" not in answer
    assert "could not be made" in caplog.text


async def test_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.05)
    async with serving(a_server()) as port:
        assert await say(port, b"GET /hello HTT") == b""


async def test_who_says_nothing_makes_room_for_who_does() -> None:
    """Idle connections do not take the probes away, and there are never more than this."""
    async with serving(a_server()) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(http.MOST_SILENT)]
        async with asyncio.timeout(10):
            assert (await say(port, HELLO)).startswith(b"HTTP/1.1 200 ")
            with contextlib.suppress(ConnectionError):
                assert await idle[0][0].read() == b"", "the oldest went"
        for reader, writer in idle[1:]:
            writer.write(HELLO)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 "), "the others are still served"
            writer.close()
        idle[0][1].close()


class Slow:
    """A path that answers when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Semaphore(0), asyncio.Event()

    async def __call__(self, _headers: Mapping[str, str]) -> Response:
        self.begun.release()
        await self.go.wait()
        return Response(b"done")


async def test_requests_that_hang_take_no_place_of_another_path() -> None:
    """Forty scrapes wait for a database that does not answer; the probes of the process are answered all the same."""
    slow = Slow()
    async with serving(HttpServer("127.0.0.1", 0, {"/slow": slow, "/hello": hello})) as port, asyncio.timeout(30):
        asking = [asyncio.create_task(say(port, b"GET /slow HTTP/1.1\r\n\r\n")) for _ in range(40)]
        refused = [await done for _, done in zip(range(8), asyncio.as_completed(asking), strict=False)]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused), refused
        for _ in range(32):
            await slow.begun.acquire()
        for _ in range(40):
            assert (await say(port, HELLO)).startswith(b"HTTP/1.1 200 ")
        assert (await say(port, b"GET /other HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        slow.go.set()
        assert sum(answer.endswith(b"done") for answer in await asyncio.gather(*asking)) == 32


async def test_who_is_being_answered_is_not_cut_off_for_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_REQUESTS", 2)
    slow, request = Slow(), b"GET /slow HTTP/1.1\r\n\r\n"
    async with serving(HttpServer("127.0.0.1", 0, {"/slow": slow, "/hello": hello})) as port, asyncio.timeout(10):
        asking = [asyncio.create_task(say(port, request)) for _ in range(2)]
        for _ in asking:
            await slow.begun.acquire()
        assert b"too many requests" in await say(port, request)
        slow.go.set()
        assert all(answer.endswith(b"done") for answer in await asyncio.gather(*asking))
        assert (await say(port, request)).endswith(b"done"), "the places are free again"


async def test_a_method_that_is_not_allowed_is_told_which_are() -> None:
    async with serving(a_server()) as port:
        assert b"\r\nAllow: GET, HEAD\r\n" in await say(port, b"POST /hello HTTP/1.1\r\n\r\n")
        assert b"Allow:" not in await say(port, HELLO)


async def test_a_request_may_be_eight_kilobytes_and_take_five_seconds() -> None:
    async with serving(a_server()) as port:
        for size, status in ((8_000, b"200"), (8_300, b"400")):
            request = HELLO[:-2] + b"X: " + b"x" * (size - len(HELLO) - 5) + b"\r\n\r\n"
            assert len(request) == size
            assert (await say(port, request)).startswith(b"HTTP/1.1 " + status)
    assert http.REQUEST_S == 5


async def test_closing_does_not_wait_for_who_is_connected() -> None:
    server = a_server()
    async with serving(server) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(2):
            await server.close()
        assert await reader.read() == b""
        writer.close()


async def test_a_port_that_is_taken_is_a_configuration_error() -> None:
    async with serving(a_server()) as port:
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}"):
            await HttpServer("127.0.0.1", port, {}).open()
