"""The sockets of `horsies web` (M-60)."""

from __future__ import annotations

import socket

import pytest

from horsies.web.server import addresses_of, listen, url_of


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
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
