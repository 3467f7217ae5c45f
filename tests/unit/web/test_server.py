"""The sockets of `horsies web` (M-60), and clients that do not say what they want (M-93)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from horsies.web import server
from horsies.web.server import addresses_of, listen, url_of
from tests.each import each


@each("host", ["127.0.0.1", "localhost"])
def test_m60_a_socket_says_that_it_is_of_tcp(host: str) -> None:
    """Only then does asyncio switch Nagle's algorithm off; otherwise every answer waits 40 ms for its second part."""
    sockets = listen(host, addresses_of(host), 0)
    try:
        assert {one.proto for one in sockets} == {socket.IPPROTO_TCP}
        assert {one.getsockname()[1] for one in sockets} == {sockets[0].getsockname()[1]}, "all on the same port"
        assert url_of(host, sockets) == f"http://{host}:{sockets[0].getsockname()[1]}"
    finally:
        for one in sockets:
            one.close()


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A server that is impatient, and answers slowly."""
    monkeypatch.setattr(server, "HEAD_S", 0.3)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.6)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(answer, lifespan="off", log_config=None)
    made = partial(server.PromptProtocol, config, ServerState(), {})
    listening = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def trickle(port: int, said: bytes, *, again: bytes = b"") -> bytes:
    """Say something, and then `again` and again until the other side has had enough; what it answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    heard = b""
    try:
        async with asyncio.timeout(10):
            while True:
                try:
                    async with asyncio.timeout(0.05):
                        heard += (more := await reader.read(1_000))
                    if not more:
                        return heard
                except TimeoutError:
                    writer.write(again)
    except ConnectionError:
        return heard
    finally:
        writer.close()


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("again", [b"", b"x"])
@pytest.mark.parametrize("said", [b"", b"G", HEAD + b"X-A: "])
async def test_m93_who_says_not_what_he_wants_is_sent_away(port: int, said: bytes, again: bytes) -> None:
    assert await trickle(port, said, again=again) == b""


async def test_m93_an_answer_may_take_longer(port: int) -> None:
    assert (await trickle(port, HEAD + b"Connection: close\r\n\r\n")).endswith(b"ok")
    body = b"Connection: close\r\nContent-Length: 1\r\n\r\nx"
    assert (await trickle(port, HEAD.replace(b"GET", b"POST") + body)).endswith(b"ok")


async def test_m93_the_next_request_of_a_connection_must_come_whole_too(port: int) -> None:
    heard = await trickle(port, HEAD + b"\r\n", again=b"G")
    assert heard.count(b"HTTP/1.1 200") == 1
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(HEAD + b"\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.4)  # it may be silent between two requests, for as long as connections are kept
    writer.close()


async def test_m93_the_rest_of_a_request_that_is_answered_must_come_soon(port: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await trickle(port, head, again=b"1\r\nx\r\n")).count(b"HTTP/1.1 200") == 1
