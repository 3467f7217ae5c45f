"""The worker process of a test; `main` runs it. It is an ordinary worker, which says when it is ready; if its order
names a moment (X-14), it dies there.

The order comes on standard input, as one line of JSON, because it contains the address of the database; a second line
tells it to begin. What the worker is observed by are its own events and stages, from outside: an ordinary worker does
not import this module, and nothing in its environment makes it die. The moments inside a child are the business of
`doomed_child.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

from psycopg.conninfo import conninfo_to_dict

from horsies.core import events, locate, logs
from horsies.core.child import forkserver
from horsies.core.tasks.moves import Complete, Fail, Move, Retry
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.in_hand import HeldTask
from horsies.core.worker.launcher import Launcher
from horsies.core.worker.service import Worker
from horsies.dev.program import ready_signal
from horsies.testing.moments import VARIABLE, Doom, Moment

IN_CHILD = "horsies.testing.doomed_child"
GO = "go"  # the second line of its input: begin to work
GONE_S = 1.0
CUT_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What the process is started with."""

    locator: str
    database_url: str
    processes: int = 1
    with_scheduler: bool = False
    doom: str | None = None
    sys_path: list[str] = field(default_factory=lambda: list(sys.path))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class DoomedWorker(Worker):
    """A worker to which something happens if there is a doom."""

    doom: Doom | None = None

    def _build(self) -> None:
        super()._build()
        if self.doom is not None and not self.doom.moment.is_in_child:
            self._await_doom(self.doom)

    def _await_doom(self, doom: Doom) -> None:
        match doom.moment:
            case Moment.CLAIMED:
                # Otherwise a claim could make the task RUNNING with the same statement.
                self._starter.offer = lambda *_, **__: None  # type: ignore[method-assign]
                events.subscribe(lambda name, facts: _on_event(doom, "tasks.claimed", name, _claimed(facts)))
            case Moment.STARTED:
                events.subscribe(lambda name, facts: _on_event(doom, "tasks.started", name, _started(facts)))
            case _:
                self._await_result(doom)

    def _await_result(self, doom: Doom) -> None:
        """The result of a task is known, and is about to be written."""
        put = self._finalizer.put

        def put_or_die(held: HeldTask, move: Move, *, uncertain: bool = False) -> None:
            if isinstance(move, Complete | Fail | Retry) and doom.strikes(held.row.task_name):
                if doom.moment is Moment.FINALIZING:
                    die()
                cut_off(self.plan.postgres.dsn())
            put(held, move, uncertain=uncertain)

        self._finalizer.put = put_or_die  # type: ignore[method-assign]


def _on_event(doom: Doom, awaited: str, name: str, task_names: list[str]) -> None:
    if name == awaited and any(doom.strikes(task_name) for task_name in task_names):
        die()


def _claimed(facts: Mapping[str, Any]) -> list[str]:
    return [row.task_name for row in facts.get("rows", ())]


def _started(facts: Mapping[str, Any]) -> list[str]:
    return [held.row.task_name for held in facts.get("batch", ())]


def die() -> NoReturn:
    """At once, as by the kernel: nothing is cleaned up or said."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process survives nothing of this kind")


def cut_off(dsn: str, seconds: float = GONE_S) -> None:
    """End every connection of this process to the database, also those that it opens anew meanwhile."""
    address = conninfo_to_dict(dsn)
    host, port = str(address.get("host") or ""), str(address.get("port") or 5432)
    _cut(host, port)  # now, before anything is written
    until = time.monotonic() + seconds

    def go_on() -> None:
        while time.monotonic() < until:
            _cut(host, port)
            time.sleep(CUT_EVERY_S)

    threading.Thread(target=go_on, daemon=True).start()


def _cut(host: str, port: str) -> None:
    for connection in _sockets():
        with connection, contextlib.suppress(OSError):
            if _leads_to(connection, host, port):
                connection.shutdown(socket.SHUT_RDWR)


def _leads_to(connection: socket.socket, host: str, port: str) -> bool:
    peer = connection.getpeername()
    if connection.family != socket.AF_UNIX:
        return str(peer[1]) == port
    name = f".s.PGSQL.{port}"
    if not host:  # the default directory of libpq
        return os.path.basename(str(peer)) == name
    return host.startswith("/") and os.path.realpath(str(peer)) == os.path.realpath(os.path.join(host, name))


def _sockets() -> Iterator[socket.socket]:
    """A second descriptor of each socket of this process, so that closing it does no harm."""
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            copy = os.dup(int(number))
            try:
                yield socket.socket(fileno=copy)
            except OSError:
                os.close(copy)


def main() -> None:
    say_ready = ready_signal()
    order = WorkerOrder(**json.loads(sys.stdin.readline()))
    sys.path[:] = order.sys_path
    logs.configure("INFO", "text")
    doom = None
    if order.doom is not None:
        doom = replace(Doom.from_json(order.doom), supervisor=os.getpid())
        os.environ[VARIABLE] = doom.to_json()  # for its children
    config = WorkerConfig(
        dsn=order.database_url,
        app_locator=order.locator,
        processes=order.processes,
        with_scheduler=order.with_scheduler,
        imports=(IN_CHILD,) if doom is not None and doom.moment.is_in_child else (),
    )
    launcher = Launcher(forkserver.fork_server())  # before the app of the user, which may start threads
    app = locate.load_app(order.locator)
    if sys.stdin.readline().strip() != GO:
        return  # nobody needs it any more
    worker = DoomedWorker(app, config, say_ready, launcher)
    worker.doom = doom
    sys.exit(asyncio.run(worker.run(install_signals=True)))
