"""A port for a dashboard that another command starts (X-31, M-96)."""

import socket

LOOPBACK = "127.0.0.1"
FIRST, TRIED = 8600, 100


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
