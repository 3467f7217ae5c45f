"""One round: a server, workers, producers and faults for a time, then rest, then the history of it all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

import psycopg

from horsies import Horsies
from tests.chaos import collect, collect_flows
from tests.chaos.faults import Faults
from tests.chaos.flow_producer import FlowProducer
from tests.chaos.history import Fault, History, pid_of
from tests.chaos.plan import Plan
from tests.chaos.producer import Producer
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server
from tests.chaos.workers import Place, leftovers
from tests.e2e.conftest import load

APP = Path(__file__).with_name("app.py")
REST_S = 60.0  # longer than every small threshold and delay, much shorter than the default ones
LONGEST_REST_S = 240.0  # as long as something still happens
UNREGISTER_S = 12.0
END_S = 25.0
MOVES = "SELECT (SELECT max(number) FROM chaos_moves) AS tasks, (SELECT max(number) FROM chaos_flow_moves) AS flows"
OPEN = """
SELECT (SELECT count(*) FROM horsies_tasks WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED'))
     + (SELECT count(*) FROM horsies_workflows WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
     + (SELECT count(*) FROM horsies_workflow_tasks WHERE status NOT IN ('COMPLETED', 'FAILED', 'SKIPPED')) AS n
"""


class Round:
    """`run` it once. Its directory stays until `clear`."""

    def __init__(self, plan: Plan, *, rest_s: float = REST_S) -> None:
        self.plan = plan
        self._rest_s = rest_s
        self._rested_s = 0.0
        # Not in pytest's own temporary directory: that one is closed to the user who runs the server for root.
        self.home = Path(tempfile.mkdtemp(prefix="horsies-chaos-")).resolve()
        self.home.chmod(0o711)
        self._server = Server(self.home / "pg")
        self._places: list[Place] = []
        self._keeping: list[asyncio.Task[None]] = []

    async def run(self) -> History:
        begin = time.time()
        with Stalls() as stalls:
            try:
                await self._server.start()
                async with self._producing() as (producer, flows):
                    faults = await self._stir(producer, flows)
                    faults.done += await self._come_to_rest(flows)
                    return await self._collect(begin, producer, flows, faults, stalls)
            finally:
                await self._end()

    def clear(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    @contextlib.asynccontextmanager
    async def _producing(self) -> AsyncIterator[tuple[Producer, FlowProducer]]:
        with patch.dict(os.environ, {"DATABASE_URL": self._server.url}):
            app: Horsies = load(APP).app
        try:
            yield Producer(app), FlowProducer(app)
        finally:
            await app.get_broker().close_async()

    async def _stir(self, producer: Producer, flows: FlowProducer) -> Faults:
        """Everything at once, for as long as the plan says; then nothing is broken any more."""
        for number in range(len(self.plan.slots)):
            proxy = Proxy(self.home / f"p{number}", lambda: self._server.socket)
            await proxy.start()
            self._places.append(Place(number, self.plan, proxy, self.home, self._server.url))
        faults = Faults(self._server, self._places)
        self._keeping = [asyncio.create_task(place.keep()) for place in self._places]
        begin = time.monotonic()
        async with asyncio.TaskGroup() as both:
            both.create_task(producer.run(self.plan.acts, begin))
            both.create_task(flows.run(self.plan.flows, begin))
            both.create_task(faults.run(self.plan.faults, begin))
        await asyncio.sleep(max(0.0, begin + self.plan.seconds - time.monotonic()))
        await faults.heal()
        await producer.finish()
        await flows.finish()
        return faults

    async def _come_to_rest(self, flows: FlowProducer) -> list[Fault]:
        """Until nothing is under way and nobody dead is registered, or it takes too long; then all are stopped."""
        begin = time.monotonic()
        resuming = asyncio.create_task(flows.resume_all())  # a failure may pause one again and again
        await self._until_nothing_happens()
        resuming.cancel()
        self._rested_s = time.monotonic() - begin
        await _until(self._are_up, self._rest_s)
        await _until(self._is_tidy, UNREGISTER_S if self.plan.has_evidence else 0.0)
        for keeping in self._keeping:
            keeping.cancel()
        told = [Fault("term", time.time(), time.time(), place.number, place.pid) for place in self._places]
        await asyncio.gather(*(place.end(END_S) for place in self._places))
        return told

    async def _until_nothing_happens(self) -> None:
        """Done, or nothing has moved for a long time; a machine that is busy with other things may need longer."""
        before: object = None
        deadline = time.monotonic() + LONGEST_REST_S

        async def is_over() -> bool:
            return await self._is_done() or await self._server.rows(MOVES) != before

        while time.monotonic() < deadline and not await self._says_done():
            with contextlib.suppress(psycopg.Error):
                before = await self._server.rows(MOVES)
            begun = time.monotonic()
            await _until(is_over, self._rest_s)
            if time.monotonic() - begun >= self._rest_s:
                return

    async def _says_done(self) -> bool:
        with contextlib.suppress(psycopg.Error):
            return await self._is_done()
        return False

    async def _is_done(self) -> bool:
        [row] = await self._server.rows(OPEN)
        return int(row["n"]) == 0

    async def _are_up(self) -> bool:
        """Each place has a worker that listens."""
        families = [place.family() for place in self._places]
        return all(family is not None and family.children for family in families)

    async def _is_tidy(self) -> bool:
        living = {place.pid for place in self._places}
        return all(pid_of(name) in living for name in await collect.registered(self._server))

    async def _collect(
        self, begin: float, producer: Producer, flows: FlowProducer, faults: Faults, stalls: Stalls
    ) -> History:
        tasks = await collect.tasks(self._server)
        complaints = [f"not sent: {why}" for why in [*producer.unsent, *flows.unsent]]
        complaints += self._server.complaints()
        for place in self._places:
            complaints += collect.troubles(place.log)
        return History(
            seed=self.plan.seed,
            begin=begin,
            sent=producer.sent,
            cancelled=producer.cancelled,
            tasks=tasks,
            attempts=await collect.attempts(self._server, {task.id: task.token for task in tasks}),
            moves=await collect.moves(self._server),
            runs=await collect.runs(self._server, self.home / "journal"),
            faults=sorted(faults.done, key=lambda fault: fault.begin),
            workers=[life for place in self._places for life in place.lives],
            beats=await collect.beats(self._server),
            stalls=stalls.found,
            has_evidence=self.plan.has_evidence,
            rest_s=self._rested_s,
            registered=await collect.registered(self._server),
            leftovers=[f"{process.pid} {' '.join(process.cmdline())}" for process in leftovers(self.home)],
            complaints=complaints,
            started=flows.started,
            controls=flows.controls,
            flows=await collect_flows.flows(self._server),
            nodes=await collect_flows.nodes(self._server),
            flow_moves=await collect_flows.moves(self._server),
        )

    async def _end(self) -> None:
        """Nothing of this round lives on, whatever has happened."""
        for keeping in self._keeping:
            keeping.cancel()
        for place in self._places:
            place.kill()
            await place.proxy.stop()
        for process in leftovers(self.home):
            process.kill()
        await self._server.stop()


async def _until(probe: Callable[[], Awaitable[bool]], patience: float) -> None:
    """What has not come true in the end is the checker's to find."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with contextlib.suppress(psycopg.Error):
            if await probe():
                return
        await asyncio.sleep(0.1)


class Stalls:
    """Notices when this machine gives us no time: what is late then is not late by anybody's fault."""

    EVERY_S = 0.1
    WORTH_NOTING_S = 0.5

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Stalls:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.time()
        while not self._over.wait(self.EVERY_S):
            now = time.time()
            if now - before > self.EVERY_S + self.WORTH_NOTING_S:
                self.found.append((before, now))
            before = now
