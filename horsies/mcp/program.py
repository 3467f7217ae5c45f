"""`horsies mcp` as a process: it serves one agent until standard input closes, or a signal comes (X-41). It is imported
when that command runs, because it needs the extra `mcp`.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import signal
from collections.abc import Callable

from horsies.core import logs
from horsies.core.app import Horsies
from horsies.core.models.broker import PostgresConfig
from horsies.mcp.protocol import make_server
from horsies.mcp.stdio import Wire
from horsies.mcp.tools import Workbench, masking_for

log = logging.getLogger("horsies.mcp")
CLOSE_S = 3.0  # the connections get this time to close; the agent may be waiting for us to end


def run(
    open_source: Callable[[], Horsies | PostgresConfig],
    *,
    enable_actions: bool,
    mask: tuple[str, ...] = (),
    hide_payloads: bool = False,
) -> int:
    """Serve until the agent or a signal ends it. `open_source` imports the user's app, which may print."""
    wire = Wire.take()
    source = open_source()
    logs.configure()
    app = source if isinstance(source, Horsies) else None
    masking = masking_for(app, mask, hides_all=hide_payloads)
    asyncio.run(_serve(wire, lambda: Workbench(source, actor=_actor(), masking=masking), enable_actions))
    return 0


async def _serve(wire: Wire, make: Callable[[], Workbench], enable_actions: bool) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    bench = make()
    serving = asyncio.create_task(_speak(wire, bench, enable_actions))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (serving, stopping):
            task.cancel()
        await asyncio.gather(serving, stopping, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(bench.close(), CLOSE_S)


async def _speak(wire: Wire, bench: Workbench, enable_actions: bool) -> None:
    server = make_server(bench, enable_actions=enable_actions)
    try:
        async with wire.streams() as (incoming, outgoing):
            log.info("serving on standard input and output%s", ", with actions" if enable_actions else "")
            await server.run(incoming, outgoing, server.create_initialization_options())
    except* (BrokenPipeError, ConnectionError):
        log.info("the agent does not listen any more")
    except* Exception as problems:
        log.error("the line to the agent failed", exc_info=problems)


def _actor() -> str:
    """Who the audit says it was: the agent of this user."""
    try:
        return f"mcp:{getpass.getuser()}"
    except (OSError, KeyError):  # a user without a name, as in many containers
        return "mcp"
