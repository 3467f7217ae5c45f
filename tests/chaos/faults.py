"""Does what the plan says to workers, the server and what is between them, when it says so, and writes down what was
really done. Every fault runs by itself, so that they overlap as they happen to.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import psutil
import psycopg

from tests.chaos.history import Fault
from tests.chaos.plan import PlannedFault
from tests.chaos.server import Server
from tests.chaos.workers import Family, Place, are_gone, signal_all

ORPHANS_PATIENCE_S = 15.0


class Faults:
    """`run` the plan; `heal` what is still broken."""

    def __init__(self, server: Server, places: list[Place]) -> None:
        self.done: list[Fault] = []
        self._server = server
        self._places = places
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: set[tuple[str, int]] = set()
        self._server_lock = asyncio.Lock()
        self._healing = asyncio.Event()

    async def run(self, planned: list[PlannedFault], begin: float) -> None:
        for fault in planned:
            await asyncio.sleep(max(0.0, begin + fault.at - time.monotonic()))
            task = asyncio.create_task(self._inflict(fault))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def heal(self) -> None:
        """Whoever is stopped goes on, whatever is cut is mended, and the server runs."""
        self._healing.set()
        if self._under_way:
            await asyncio.gather(*self._under_way)
        for place in self._places:
            place.proxy.heal()
        await self._server.ensure_running()

    async def _inflict(self, planned: PlannedFault) -> None:
        if planned.kind.startswith("server"):
            await self._at_server(planned)
        elif planned.kind == "cut sessions":
            await self._cut_sessions(planned)
        elif (found := self._whom(planned)) is not None:
            place, family = found
            if planned.kind in ("refuse", "freeze", "deaf"):
                await self._alone("network", place, self._at_network(planned, place))
            elif planned.kind.startswith("stop"):
                await self._alone("stop", place, self._stop(planned, place, family))
            else:
                await self._kill(planned, place, family)

    def _whom(self, planned: PlannedFault) -> tuple[Place, Family] | None:
        """The worker of the place that is planned; the next one if that is empty just now."""
        for number in range(len(self._places)):
            place = self._places[(planned.slot + number) % len(self._places)]
            if (family := place.family()) is not None:
                return place, family
        return None

    async def _alone(self, what: str, place: Place, fault: Coroutine[Any, Any, None]) -> None:
        """Not while another of this sort is under way there: the end of one would be the end of both."""
        if (what, place.number) in self._busy:
            fault.close()
            return
        self._busy.add((what, place.number))
        try:
            await fault
        finally:
            self._busy.discard((what, place.number))

    async def _last(self, seconds: float) -> None:
        """For so long, or until everything is to be healed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._healing.wait(), seconds)

    def _note(
        self, planned: PlannedFault, begin: float, place: Place | None = None, worker: int = 0, **facts: Any
    ) -> None:
        slot = None if place is None else place.number
        self.done.append(Fault(planned.kind, begin, time.time(), slot, worker, **facts))

    async def _at_server(self, planned: PlannedFault) -> None:
        async with self._server_lock:
            begin = time.time()
            await self._server.restart(planned.kind.removeprefix("server "), planned.seconds)
            self._note(planned, begin)

    async def _cut_sessions(self, planned: PlannedFault) -> None:
        begin = time.time()
        with contextlib.suppress(psycopg.Error):  # the server may be away
            count = await self._server.cut_sessions(share=(planned.nth % 10 + 1) / 10)
            self._note(planned, begin, note=f"{count} sessions")

    async def _at_network(self, planned: PlannedFault, place: Place) -> None:
        begin, worker = time.time(), place.pid
        act: Callable[[], None] = {
            "refuse": place.proxy.refuse, "freeze": place.proxy.freeze, "deaf": place.proxy.deafen,
        }[planned.kind]  # fmt: skip
        act()
        await self._last(planned.seconds)
        place.proxy.heal(cuts=planned.kind == "deaf" or planned.nth % 2 == 0)
        self._note(planned, begin, place, worker)

    async def _kill(self, planned: PlannedFault, place: Place, family: Family) -> None:
        targets = _targets(planned, family)
        if not targets:
            return
        begin = time.time()
        sig = signal.SIGTERM if planned.kind == "term" else signal.SIGKILL
        pids = signal_all(targets, sig)
        self._note(planned, begin, place, family.supervisor.pid, pids=pids)
        if planned.kind == "kill supervisor":
            await self._watch_orphans(place, family, begin)

    async def _watch_orphans(self, place: Place, family: Family, begin: float) -> None:
        """How long its children live on without it (W-54)."""
        while not are_gone(family.children) and time.time() - begin < ORPHANS_PATIENCE_S:
            await asyncio.sleep(0.01)
        place.note_orphans(family.supervisor.pid, time.time() - begin)

    async def _stop(self, planned: PlannedFault, place: Place, family: Family) -> None:
        targets = _targets(planned, family)
        if not targets:
            return
        begin = time.time()
        pids = signal_all(targets, signal.SIGSTOP)
        await self._last(planned.seconds)
        Random(planned.nth).shuffle(targets)
        signal_all(targets, signal.SIGCONT)
        self._note(planned, begin, place, family.supervisor.pid, pids=pids)


def _targets(planned: PlannedFault, family: Family) -> list[psutil.Process]:
    match planned.kind.split(" ", 1)[-1]:
        case "worker":
            return family.all
        case "supervisor":
            return [family.supervisor]
        case "term":  # one that is just starting may not listen yet
            return [family.supervisor] if family.children else []
        case "fork server":
            return family.fork_servers
        case _:
            return [family.children[planned.nth % len(family.children)]] if family.children else []
