"""One story: the server, the model beside it, and the steps that were taken. After each step both are compared.

Statements run through `ask`, which can break the connection before any of them, or after the commit when only the
answer is missing. What the model says after each commit is kept for as long as a crash of the server may undo it.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import psycopg

from tests.proof.model import IN_FLIGHT, World
from tests.proof.rows import Task
from tests.proof.server import Connection, Server
from tests.proof.stored import Memory, Stored, differences, read
from tests.proof.values import Hold, Request
from tests.proof.worker import Terms, Worker

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What came of a statement: whether it was committed, what the server answered, and whether that was heard."""

    is_committed: bool
    is_heard: bool
    value: T | None = None

    def get(self) -> T:
        assert self.value is not None
        return self.value


class Story:
    """`step` begins a step, `run` runs what happens in it and compares."""

    def __init__(self, server: Server, tally: Counter[str]) -> None:
        self.server = server
        self.tally = tally
        self.world = World()
        self.world.arrows = tally
        self.told: list[str] = []
        self.terms = Terms()
        self.workers: list[Worker] = []
        self.requests: list[Request] = []
        self.unconfirmed: list[Request] = []
        self.holds: list[Hold] = []  # every claim there ever was, also those that are lost
        self.runs: set[Hold] = set()  # the claims under which user code was called
        self.crashes = 0
        self._brought_back: set[Hold] = set()
        self._memory = Memory()
        self._clock: dict[int, tuple[datetime, datetime]] = {}
        self._may_remain = [self.world.copy()]
        server.run(self._begin())

    async def _begin(self) -> None:
        await self.server.clear()
        self.stored = await read(await self.server.connection("watch"))
        self._last = self.stored.now

    def step(self, text: str) -> None:
        self.world.step += 1
        self.told.append(text)
        self.tally["steps"] += 1

    def run(self, *acts: Coroutine[Any, Any, None]) -> None:
        """Take these acts, then compare."""
        self.server.run(self._compared(acts))

    async def _compared(self, acts: Iterable[Coroutine[Any, Any, None]]) -> None:
        for act in acts:
            await act
        await self.check()

    # Statements

    async def ask(self, user: str, breaks_after: int | None, do: Callable[[Connection], Awaitable[T]]) -> Answer[T]:
        """Run a function of the store. `breaks_after`: so many statements reach the server before the connection
        breaks; when there are not as many, it breaks after the last commit, before the answer."""
        conn = await self.server.connection(user)
        conn.breaks_after = breaks_after
        try:
            value = await do(conn)
        except psycopg.OperationalError:
            if breaks_after is None:
                raise
            await self._lose(user, in_transaction=breaks_after > 0)
            return Answer(is_committed=False, is_heard=False)
        if breaks_after is not None:
            await self._lose(user, in_transaction=False)
        return Answer(is_committed=True, is_heard=breaks_after is None, value=value)

    async def _lose(self, user: str, *, in_transaction: bool) -> None:
        self.tally["connections lost"] += 1
        self.told[-1] += " — the connection breaks"
        await self.server.cut(user, in_transaction=in_transaction)

    def committed(self, *, synchronously: bool) -> None:
        """The model has followed a statement. A synchronous commit takes along whatever was committed before it."""
        if self.world.is_same(self._may_remain[-1]):
            return
        self._may_remain = [*([] if synchronously else self._may_remain), self.world.copy()]

    # Comparing

    async def check(self) -> None:
        """End the step: the database is what the model says."""
        self.stored = await read(await self.server.connection("watch"))
        self._clock[self.world.step] = (self._last, self.stored.now)
        self._last = self.stored.now
        self._demand(differences(self.world, self.stored, self._clock) or self._memory.changes(self.world, self.stored))
        self._demand(list(self._broken_rules()))

    def _demand(self, wrong: list[str]) -> None:
        if wrong:
            story = "\n  ".join(f"{number}. {text}" for number, text in enumerate(self.told, start=1))
            raise AssertionError("\n".join(wrong) + f"\nafter\n  {story}")

    def demand(self, is_right: bool, wrong: str) -> None:
        """What must hold in the middle of a step."""
        if not is_right:
            self._demand([wrong])

    def _broken_rules(self) -> list[str]:
        """What must hold at every moment, whatever has happened."""
        wrong = [f"user code ran for {hold}, which was never RUNNING" for hold in self.runs - self.world.started]
        in_flight = [task for task in self.world.tasks.values() if task.claimed]
        if self.terms.cluster_cap is not None and len(in_flight) > self.terms.cluster_cap:
            wrong.append(f"{len(in_flight)} tasks are in flight, the cap is {self.terms.cluster_cap} (W-26)")
        for worker in self.workers:
            if not worker.is_unsure:
                mine = {hold_of(task) for task in in_flight if task.claimed_by_worker_id == worker.id}
                unknown = mine - worker.known() - self._brought_back
                wrong += [f"{hold} is not known to its worker (W-21)" for hold in unknown]
        return wrong

    def crash(self, sig: signal.Signals) -> None:
        """The server dies and comes back with what it had written down: everything up to some moment after the last
        synchronous commit."""
        self.crashes += 1
        self.server.crash(sig)
        self.stored = self.server.run(self._read_again())
        clock = {**self._clock, self.world.step: (self._last, self.stored.now)}
        for number, world in enumerate(reversed(self._may_remain)):
            if not differences(world, self.stored, clock):
                self.tally["crashes"] += 1
                self.tally["commits lost"] += number
                self.told[-1] += f" — {number} commits are lost"
                self._go_on_with(world)
                return
        newest, oldest = (
            differences(world, self.stored, clock) for world in (self._may_remain[-1], self._may_remain[0])
        )
        self._demand(["after the crash nothing fits; the newest state:", *newest, "the last synchronous one:", *oldest])

    async def _read_again(self) -> Stored:
        return await read(await self.server.connection("watch"))

    def _go_on_with(self, world: World) -> None:
        step, self.world = self.world.step, world.copy()
        self.world.step = step
        self._may_remain = [self.world.copy()]
        self._memory.forget_instants()
        # A claim that somebody had taken over may be its former owner's again, who has dropped it: it will lapse.
        known = {hold for worker in self.workers for hold in worker.known()}
        self._brought_back |= {hold for hold, _ in self.in_flight()} - known

    # Looking around

    def in_flight(self) -> list[tuple[Hold, Task]]:
        return [(hold_of(task), task) for task in self.world.tasks.values() if task.status in IN_FLIGHT]

    def row(self, task_id: str) -> Any:
        return self.stored.tasks[task_id]


def hold_of(task: Task) -> Hold:
    assert task.claimed_by_worker_id is not None
    return Hold(task.claimed_by_worker_id, task.request.task_id, task.claim_seq)
