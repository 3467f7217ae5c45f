"""Runs operations at the same time, in the interleaving an example asks for, and one after the other for comparison."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Self

import psycopg
from psycopg import AsyncCopy, AsyncCursor

from horsies.core.db.pool import PromptConnection
from horsies.core.schema.install import lock_key, schedule_purpose
from horsies.core.store.retention import RETENTION_LOCK
from horsies.core.store.workers import SWEEP_LOCK
from tests.architecture.source import forms, statements
from tests.proof_pairs.kinds import PRUNER, SCHEDULERS, SWEEPER, Operation
from tests.proof_pairs.plays import PERSONAS, Ending, Example, Failure, Pause, Play, Role, Run, Way
from tests.proof_pairs.stage import SESSION, Stage, at

BARRIER = 9  # the gate that all share when they are let go together
POLL_S = 0.002
PATIENCE = 4000  # looks at sessions that do not move; not seconds, because a machine may stand still for a while
NEVER = 1 << 60

# What a name means (`Kind.names`).
_LOCKS = (
    "SELECT FROM horsies_tasks WHERE id = ANY(%s) FOR UPDATE",
    "SELECT FROM horsies_waiting WHERE topic || ' of ' || holder = ANY(%s) FOR UPDATE",
    "SELECT FROM horsies_workers WHERE 'worker ' || worker_id = ANY(%s) FOR UPDATE",
    "SELECT FROM horsies_heartbeats WHERE 'horsies_heartbeats' = ANY(%s) FOR UPDATE",
    "SELECT FROM horsies_worker_states WHERE 'horsies_worker_states' = ANY(%s) FOR UPDATE",
    "SELECT FROM horsies_workflows WHERE 'horsies_workflows' = ANY(%s) FOR UPDATE",
    "SELECT FROM horsies_workflow_tasks WHERE 'node ' || node_id = ANY(%s) FOR UPDATE",
    f"SELECT pg_advisory_xact_lock({RETENTION_LOCK}) WHERE '{PRUNER}' = ANY(%s)",
    f"SELECT pg_advisory_xact_lock({SWEEP_LOCK}) WHERE '{SWEEPER}' = ANY(%s)",
    "SELECT FROM horsies_schedule_state WHERE 'schedule ' || schedule_name = ANY(%s) FOR UPDATE",
    *(
        f"SELECT pg_advisory_xact_lock({lock_key(schedule_purpose(name))}) WHERE '{lock}' = ANY(%s)"
        for name, lock in SCHEDULERS.items()
    ),
)


class SteppedCursor(AsyncCursor[Any]):
    """The same for what is copied."""

    @asynccontextmanager
    async def copy(self, statement: Any, *args: Any, **kwargs: Any) -> AsyncIterator[AsyncCopy]:  # type: ignore[override]
        assert isinstance(self.connection, Stepped)
        await self.connection.before(statement)
        async with super().copy(statement, *args, **kwargs) as copying:
            yield copying


class Stepped(PromptConnection):
    """A connection that can stand still before its n-th statement, and remembers which files it ran."""

    actor: Actor | None = None
    pid: int
    seen: set[Any]

    async def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        await self.before(query)
        return await super().execute(query, *args, **kwargs)

    async def before(self, query: Any) -> None:
        self.seen.add(query)
        if self.actor is not None:
            await self.actor.before_statement()


class Standing(Enum):
    NEW = "not started"
    BUSY = "in the database"
    PAUSED = "between two statements"
    HELD = "done, its transaction open"
    ENDED = "ended"


class Stuck(AssertionError):
    """Operations wait and nobody can move."""


class Actor:
    """One operation under way on its own connection."""

    def __init__(self, arena: Arena, place: int, operation: Operation, role: Role, conn: Stepped) -> None:
        self.place, self.operation, self.role, self.conn = place, operation, role, conn
        self.state = Standing.NEW
        self.answer: Any = None
        self.began = self.ended = 0
        self.is_let_go = role.pause == Pause()
        self._arena = arena
        self._let_go = asyncio.Event()
        self._may_end = asyncio.Event()
        self._statements = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.began = self._arena.tick()
        self.conn.actor = self
        self._move(Standing.BUSY)
        self._task = asyncio.create_task(self._perform())

    def let_go(self) -> None:
        self.is_let_go = True
        if self.state is Standing.PAUSED:
            self._move(Standing.BUSY)
        self._let_go.set()

    def end(self) -> None:
        if self.state is Standing.HELD:
            self._move(Standing.BUSY)
        self._may_end.set()

    async def has_finished(self) -> bool:
        """Wait for its end, but not for long: a statement may be stuck."""
        return self._task is None or bool((await asyncio.wait([self._task], timeout=1))[0])

    async def before_statement(self) -> None:
        self._statements += 1
        if self._statements == self.role.pause.statement and not self.is_let_go:
            self._move(Standing.PAUSED)
            await self._let_go.wait()

    async def _perform(self) -> None:
        try:
            self.answer = await self._run()
        except psycopg.Error as problem:
            self.answer = Failure(problem.sqlstate, type(problem).__name__)
        finally:
            self.conn.actor = None
            # Nobody knows when the server notices that a connection is lost, and gives up its locks.
            self.ended = NEVER if self.role.ending is Ending.LOST else self._arena.tick()
            self._move(Standing.ENDED)

    async def _run(self) -> Any:
        ending = self.role.ending
        if not ending.is_held:
            return await self.operation.run(self.conn)
        async with self.conn.transaction(force_rollback=ending is Ending.ROLLBACK):
            answer = await self.operation.run(self.conn)
            self._move(Standing.HELD)
            await self._may_end.wait()
            if ending is Ending.LOST:
                self.conn.pgconn.finish()
        return answer

    def _move(self, state: Standing) -> None:
        self.state = state
        self._arena.moved.set()


class Arena:
    """The connections of the property. `together` runs an example as it says, `one_by_one` in a serial order."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conns: dict[tuple[int, int], Stepped] = {}
        self._ticks = itertools.count(1)
        self.moved = asyncio.Event()
        self._seen: set[Any] = set()
        self.pids: set[int] = set()
        self.trace: list[str] = []
        self.actors: list[Actor] = []

    async def __aenter__(self) -> Self:
        self.stage = await Stage.open(self._url)
        self._bystander = await self._connect("")
        return self

    async def __aexit__(self, *exc: object) -> None:
        for conn in (*self._conns.values(), self._bystander):
            await conn.close()
        await self.stage.close()

    def tick(self) -> int:
        return next(self._ticks)

    @property
    def files(self) -> set[str]:
        """The statements that have been run."""
        return {name for name in statements() if not self._seen.isdisjoint(forms(name))}

    # All at the same time

    async def together(self, example: Example, play: Play) -> Run:
        self.trace = []
        self.actors = [
            Actor(self, place, example.operations[place], role, await self._ready(place, role.persona))
            for place, role in enumerate(play.roles)
        ]
        await self._prepare(example, play)
        try:
            async with self._locked(play.obstacle and frozenset({play.obstacle})) as is_obstructed:
                if play.together:
                    await self._start_together()
                for place in play.turns:
                    if await (self._step(self.actors[place]) if place < len(self.actors) else self._go(is_obstructed)):
                        await self._settle()
            await self._finish()
        finally:
            await self._clear_up()
        outcome = await self.stage.outcome()
        return Run([self.stage.renamed(actor.answer) for actor in self.actors], outcome)

    async def _start_together(self) -> None:
        for actor in self.actors:
            actor.start()
        await self._settle()
        self.trace.append("all are let go")
        await self.stage.lift({BARRIER})
        for actor in self.actors:
            actor.is_let_go = not actor.role.pause.statement
        await self._settle()

    async def _prepare(self, example: Example, play: Play) -> None:
        """The rows, the clocks, and the gates that will hold someone."""
        if play.together:
            gates = {actor.place: BARRIER for actor in self.actors}
        else:
            gates = {actor.place: actor.place for actor in self.actors if actor.role.pause.reading}

        async def restore() -> None:
            await self.stage.restore(example.start.as_json())
            await self.stage.hold(set(gates.values()))

        async def wind(actor: Actor) -> None:
            readings = actor.role.pause.reading or (1 if play.together else 0)
            await _set(actor.conn, example.clocks[actor.place], readings, gates.get(actor.place, 0))

        await asyncio.gather(restore(), *map(wind, self.actors))

    async def _step(self, actor: Actor) -> bool:
        """Its next step, if it can take one now."""
        if actor.state is Standing.NEW:
            actor.start()
            self.trace.append(f"{actor.place} starts")
        elif not actor.is_let_go and actor.state is not Standing.ENDED:
            if actor.role.pause.reading:
                await self.stage.lift({actor.place})
            actor.let_go()
            self.trace.append(f"{actor.place} is let go")
        elif actor.state is Standing.HELD:
            actor.end()
            self.trace.append(f"{actor.place} ends: {actor.role.ending.name}")
        else:
            return False
        return True

    async def _go(self, is_there: bool) -> bool:
        """Let the obstacle's row go."""
        if is_there:
            self.trace.append("the obstacle goes")
            await self._bystander.execute("ROLLBACK TO before")
        return is_there

    async def _settle(self) -> None:
        """Wait until everybody that is busy has got somewhere or waits for a lock."""
        looks = 0
        while busy := [actor for actor in self.actors if actor.state is Standing.BUSY]:
            self.moved.clear()
            try:
                await asyncio.wait_for(self.moved.wait(), POLL_S)
            except TimeoutError:
                looks += 1
                waiting = await self.stage.waiting([actor.conn.pid for actor in busy])
                self._nobody_waits_who_must_not(busy, waiting)
                if all(actor.state is Standing.BUSY and actor.conn.pid in waiting for actor in busy):
                    self.trace += [f"{actor.place} waits" for actor in busy]
                    return
            if looks > PATIENCE:
                raise Stuck(f"still busy: {self.trace}")

    def _nobody_waits_who_must_not(self, busy: Sequence[Actor], waiting: dict[int, str]) -> None:
        for actor in busy:
            event = waiting.get(actor.conn.pid, "advisory")
            # `object` is the lock that commits with notifications take for a moment, one after the other.
            assert actor.operation.kind.waits or event in ("advisory", "object"), (
                f"{actor.operation} waits for a lock ({event}); it should wait for nobody. {self.trace}"
            )

    async def _finish(self) -> None:
        """All remaining steps, in order of place, until everybody has ended."""
        looks = 0
        while any(actor.state is not Standing.ENDED for actor in self.actors):
            stepped = [await self._step(actor) for actor in self.actors]
            await self._settle()
            looks = 0 if any(stepped) else looks + 1
            if looks > PATIENCE / 10:
                raise Stuck(f"nobody moves any more: {self.trace}")

    async def _clear_up(self) -> None:
        """Nothing of this example may be left in the sessions, after a failure neither."""
        await self.stage.lift_all()
        for actor in self.actors:
            actor.let_go()
            actor.end()
        for actor in self.actors:
            while not await actor.has_finished():
                await self.stage.cancel(actor.conn.pid)
            if actor.conn.closed:
                await self._is_gone(actor.conn)

    # One after the other

    async def one_by_one(self, example: Example, way: Way) -> Run:
        """The operations in a serial order."""
        conns = [await self._ready(place, 0) for place in range(len(way.order))]
        wound = [_set(conn, clock, 0, 0) for conn, clock in zip(conns, example.clocks, strict=True)]
        await asyncio.gather(self.stage.restore(example.start.as_json()), *wound)
        answers: dict[int, Any] = {}
        for place in way.order:
            async with self._locked(way.left_out_by(place)):
                answers[place] = await _alone(conns[place], example.operations[place], is_undone=place in way.undone)
            if place in way.unseen:
                await self.stage.hide_beats()
        if way.unseen:
            await self.stage.show_beats()
        outcome = await self.stage.outcome()
        return Run([self.stage.renamed(answers[place]) for place in range(len(way.order))], outcome)

    @asynccontextmanager
    async def _locked(self, names: frozenset[str] | None) -> AsyncIterator[bool]:
        """Keep rows locked; going back to the savepoint lets them go early."""
        if not names:
            yield False
            return
        async with self._bystander.transaction():
            await self._bystander.execute("SAVEPOINT before")
            for query in _LOCKS:
                await self._bystander.execute(query, [sorted(names)])
            yield True

    # Connections

    async def _ready(self, place: int, persona: int) -> Stepped:
        """The connection of this place and persona, made again if it was lost."""
        conn = self._conns.get((place, persona))
        if conn is None or conn.closed:
            conn = self._conns[place, persona] = await self._connect(PERSONAS[persona])
        return conn

    async def _is_gone(self, conn: Stepped) -> None:
        """Its transaction is open, and its rows are locked, until the server has noticed."""
        while not await self.stage.has_ended(conn.pid):
            await asyncio.sleep(0.001)

    async def _connect(self, persona: str) -> Stepped:
        options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        conn = await Stepped.connect(
            self._url, autocommit=True, options=f"{options} {persona}", cursor_factory=SteppedCursor
        )
        conn.pid, conn.seen = conn.pgconn.backend_pid, self._seen
        self.pids.add(conn.pid)
        return conn


async def _set(conn: Stepped, clock: float, readings: int, gate: int) -> None:
    """Set the session's clock and gate; locks that a session kept (liveness) are given back."""
    await conn.execute(
        "SELECT pg_advisory_unlock_all(), set_config('proof.now', %s, FALSE), set_config('proof.readings', %s, FALSE),"
        " set_config('proof.gate', %s, FALSE)",
        [at(clock), str(readings), str(gate)],
    )


async def _alone(conn: Stepped, operation: Operation, *, is_undone: bool) -> Any:
    try:
        if is_undone:
            async with conn.transaction(force_rollback=True):
                return await operation.run(conn)
        return await operation.run(conn)
    except psycopg.Error as problem:
        return Failure(problem.sqlstate, type(problem).__name__)
