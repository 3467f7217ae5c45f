"""Serves the dashboard by itself (`horsies web`). The sockets are opened here, so that a port that is taken is a plain
error, and so that what is checked (only loopback without a policy) is what is listened on. A signal ends all event
streams at once: otherwise the server would wait for clients that never leave. Who connects must say what he wants
within ten seconds: otherwise a thousand silent connections would keep everybody else out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.text import visible
from horsies.web.dashboard import Dashboard

GRACE_S = 1
BACKLOG = 128
MOST_CONNECTIONS = 1_000
HEAD_S = 10.0  # for the head of a request, and for the rest of a body that nobody waits for
TAKEN = "another process may use the port: --port names another one"
UNKNOWN = "--host takes an address of this machine, or a name that has one"


def addresses_of(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Where to listen for this host: an address, or a name that may have several."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise _cannot_listen(host, problem.strerror or str(problem), UNKNOWN) from None
    except UnicodeError:
        raise _cannot_listen(host, "this is not the name of a host", UNKNOWN) from None
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def are_loopback(addresses: Sequence[tuple[socket.AddressFamily, str]]) -> bool:
    """Whether only programs on this machine can reach them."""
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for _, address in addresses)


def listen(host: str, addresses: Sequence[tuple[socket.AddressFamily, str]], port: int) -> list[socket.socket]:
    """A socket for each address, all on the same port. `ConfigurationError` if it cannot be used."""
    opened: list[socket.socket] = []
    try:
        for family, address in addresses:
            one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio asks for it: TCP_NODELAY
            opened.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address, port))
            one.listen(BACKLOG)
            port = port or one.getsockname()[1]
    except OSError as problem:
        for one in opened:
            one.close()
        raise _cannot_listen(f"{host}:{port}", problem.strerror or str(problem), TAKEN) from None
    return opened


def url_of(host: str, sockets: Sequence[socket.socket]) -> str:
    """What to type into a browser."""
    port = sockets[0].getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def serve(app: Starlette, sockets: Sequence[socket.socket], on_ready: Callable[[], None]) -> None:
    """Until SIGTERM or SIGINT. Requests that are being answered then have a second."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        http=PromptProtocol,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config, app.state.dashboard)
    telling = asyncio.create_task(_tell(server, on_ready))
    try:
        await server.serve(sockets=list(sockets))
    finally:
        telling.cancel()


class PromptProtocol(H11Protocol):
    """Closes connections whose client owes something for too long: the head of a request, or the rest of one that has
    been answered. What comes byte by byte does not make it longer."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE:
            self._set_deadline()
        else:
            self._unset_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._deadline = self._deadline or self.loop.call_later(HEAD_S, self.transport.close)

    def _unset_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Server(uvicorn.Server):
    """A signal is a clean end, and ends the streams first."""

    def __init__(self, config: uvicorn.Config, dashboard: Dashboard) -> None:
        super().__init__(config)
        self._dashboard = dashboard

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # a second signal
        self.should_exit = True
        self._dashboard.streams.end_all()


async def _tell(server: uvicorn.Server, on_ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    on_ready()


def _cannot_listen(where: str, why: str, hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"cannot listen on {visible(where)}: {why}", code=ErrorCode.CLI_INVALID_ARGS, help_text=hint
    )
