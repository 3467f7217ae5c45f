"""A port for the dashboard that another command starts (X-31, M-96). It is held from the moment it is chosen: nobody
else can take it before the dashboard listens, or while the dashboard starts again. Who connects meanwhile waits.
"""

import socket
from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
FIRST, TRIED = 8600, 100
BACKLOG = 128


def first_free(first: int = FIRST) -> socket.socket:
    """It listens on the first port from here on that nobody else uses; on any if all that are tried are taken."""
    return held((*range(first, first + TRIED), 0))


def held(ports: Iterable[int]) -> socket.socket:
    """It listens on the first of these ports that nobody else uses. `OSError` if there is none."""
    problem = OSError("no port was named")
    for port in ports:
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((LOOPBACK, port))
            one.listen(BACKLOG)
        except OSError as refused:
            problem = refused
            one.close()
        else:
            return one
    raise problem


def port_of(one: socket.socket) -> int:
    return int(one.getsockname()[1])


def free_port(first: int = FIRST) -> int:
    """The first port from here on that nobody uses, or any other if all that are tried are taken."""
    for port in (*range(first, min(first + TRIED, 65_536)), 0):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((LOOPBACK, port))
                one.listen()
            except OSError:
                continue
            return int(one.getsockname()[1])
    raise OSError(f"no free port on {LOOPBACK}")
