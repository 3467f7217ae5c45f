"""Writes the ends of tasks: results, retries, crashes, returns. Everything that has collected goes into one batch.

Nothing is lost while the database is away: moves wait here, in order, until they are written or their claim is found to
be gone. A row that the database refuses for its content is found by halving the batch and does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import psycopg

from horsies.core import events
from horsies.core.brokers.backoff import Backoff
from horsies.core.brokers.results import AWAY, describe, is_about_content
from horsies.core.lifecycle.moves import Expire, Fail, Move, Requeue, Retry
from horsies.core.models.resilience import WorkerResilienceConfig
from horsies.core.store import tasks
from horsies.core.store.halving import by_halves
from horsies.core.worker import outcome
from horsies.core.worker.hand import Held, Phase
from horsies.core.worker.lanes import Lanes
from horsies.core.worker.loop import Patience

log = logging.getLogger("horsies.worker")

MAX_BATCH = 500
MAX_BATCH_BYTES = 8 << 20

Settled: TypeAlias = Callable[[Held, Move, bool], None]


@dataclass(slots=True)
class Ending:
    """One task and its end. `uncertain`: an earlier try may have been committed without our knowledge; `replaced`: the
    database refused the result, and this is the record of that."""

    held: Held
    move: Move
    uncertain: bool = False
    replaced: bool = False
    refusals: int = 0


class Finalizer:
    """`put` adds an end; `on_settled(held, move, moved)` is called once it is in the database, or was too late."""

    def __init__(self, lanes: Lanes, worker_id: str, config: WorkerResilienceConfig, on_settled: Settled) -> None:
        self._lanes = lanes
        self._worker_id = worker_id
        self._on_settled = on_settled
        self._patience = Patience("finalizer", config)
        self._backoff = Backoff(config.db_retry_initial_ms / 1000, config.db_retry_max_ms / 1000)
        self._endings: deque[Ending] = deque()
        self._work = asyncio.Event()

    def put(self, held: Held, move: Move, *, uncertain: bool = False) -> None:
        """The end of this task is known; write it as soon as possible."""
        if held.phase is Phase.STARTED:
            held.settling_since = monotonic()
        held.phase = Phase.SETTLING
        self._append(Ending(held, move, uncertain))

    def _append(self, ending: Ending) -> None:
        self._endings.append(ending)
        self._work.set()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            batch = self._next_batch()
            if not batch:
                self._work.clear()
                continue
            await self._write(batch)

    def _next_batch(self) -> list[Ending]:
        batch: list[Ending] = []
        size = 0
        while self._endings and len(batch) < MAX_BATCH and (size < MAX_BATCH_BYTES or not batch):
            ending = self._endings.popleft()
            size += _size(ending.move)
            batch.append(ending)
        return batch

    async def _write(self, batch: list[Ending]) -> None:
        """Write this batch. When the database refuses its content, or somebody keeps a row of it locked, halve it."""
        await by_halves(batch, self._write_part, is_refusal=_is_about_one, give_up=self._set_aside)

    async def _write_part(self, batch: Sequence[Ending]) -> None:
        """In one transaction, however long the database is away."""
        while True:
            began = monotonic()
            try:
                async with self._lanes.connection() as conn:
                    moved = await tasks.apply_kinds(conn, self._worker_id, [ending.move for ending in batch])
            except (*AWAY, UnicodeError) as problem:
                if _is_about_one(problem):
                    if len(batch) == 1 and is_about_content(problem) and self._replace(batch[0], problem):
                        continue
                    raise
                for ending in batch:
                    ending.uncertain = True
                await asyncio.sleep(self._patience.failed(problem))
                continue
            self._patience.succeeded()
            if events.listeners:
                events.emit("tasks.finalized", endings=batch, moved=moved, seconds=monotonic() - began)
            self._settle(batch, moved)
            return

    def _replace(self, ending: Ending, problem: BaseException) -> bool:
        """The database refuses this row: record that instead of its result. False if that was refused as well."""
        log.error(
            "the database refused the end of a task: %s",
            describe(problem),
            extra={"horsies": {"task_id": ending.held.id, "task": ending.held.row.task_name}},
        )
        if ending.replaced or isinstance(ending.move, Requeue | Expire):
            return False
        ending.move, ending.replaced = outcome.of_refused_row(ending.held, describe(problem)), True
        return True

    def _set_aside(self, ending: Ending, _problem: Exception) -> None:
        """Nothing about this task can be written now: it is retried from time to time, and the others continue."""
        ending.refusals += 1
        pause = self._backoff.delay(ending.refusals)
        asyncio.get_running_loop().call_later(pause, self._append, ending)

    def _settle(self, batch: Iterable[Ending], moved: Mapping[str, type]) -> None:
        for ending in batch:
            ok = ending.held.id in moved
            if not ok and not ending.uncertain:
                log.warning(
                    "the result is dropped: the task was recovered or cancelled in the meantime",
                    extra={"horsies": {"task_id": ending.held.id, "task": ending.held.row.task_name}},
                )
            move = ending.move
            if isinstance(move, Retry) and moved.get(ending.held.id) is Fail:
                move = move.otherwise  # the deadline left no room for it (L-22)
            self._on_settled(ending.held, move, ok)


def _is_about_one(problem: Exception) -> bool:
    return isinstance(problem, psycopg.errors.LockNotAvailable) or is_about_content(problem)


def _size(move: Move) -> int:
    end = move.otherwise if isinstance(move, Retry) else move
    return len(getattr(end, "result", ""))
