"""Writes what the tasks of a worker say while they run: progress (P-50) and logs (P-51a). All that has collected is
written together, about once a second, with a commit that does not wait for the disk.

Nothing waits for this. While the database is away, only the newest progress of each task is kept, and of the logs as
much as `MOST_BYTES`: what is dropped shows as a gap in the numbers of the lines. What the database refuses is found by
halving, and dropped without the rest; this is told once in a while. A run whose claim is over cannot overwrite the
progress of a later one, because the statement names the claim.
"""

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeVar

from horsies.core.child.wire import Kind
from horsies.core.db import AWAY, Connections, by_halves, describe, in_one_go, is_about_content
from horsies.core.logs import is_worth_a_line
from horsies.core.models.notes import Progress
from horsies.core.store import notes
from horsies.core.worker.dispatch import Dispatcher
from horsies.core.worker.in_hand import HeldTask

T = TypeVar("T")

log = logging.getLogger("horsies.worker")

PAUSE_S = 1.0
FLUSH_S = 3.0  # at the end of the worker
MOST_BYTES = 16 << 20  # of log lines that wait here
BATCH_BYTES = 2 << 20  # of them in one transaction
BATCH_ROWS = 500
UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)  # the user's code may have written into our socket
MOST_REFUSALS = 100  # of one kind in one batch: about ten odd rows are found with them; the rest is dropped then


class NoteWriter:
    """`hear` takes what a task says; each `step` waits for something and writes it."""

    def __init__(self, database: Connections, worker_id: str, dispatcher: Dispatcher | None = None) -> None:
        if dispatcher is not None:
            dispatcher.on_note = self.hear
        self._database = database
        self._worker_id = worker_id
        self._progress: dict[str, notes.ProgressRow] = {}
        self._logs: deque[notes.LogRow] = deque()
        self._trims: dict[tuple[str, int], notes.LogTrim] = {}
        self._bytes = 0
        self._some = asyncio.Event()
        self._failures = 0

    def hear(self, held: HeldTask, kind: Kind, parts: list[bytes]) -> None:
        """What a child says about a task that it runs. It may be said twice, by the socket and by the outbox."""
        row = held.row
        run = (row.id, row.claim_seq, row.retry_count + 1)
        try:
            if kind is Kind.PROGRESS:
                [given] = parts
                self._progress[row.id] = notes.ProgressRow(*run, *Progress.of(*json.loads(given)))
            elif kind is Kind.LOGGED:
                numbers, lines = parts
                first, last, after, before = map(int, json.loads(numbers))
                self._keep(notes.LogRow(*run, first, last, lines.decode()))
                if before:
                    self._trims[run[:2]] = notes.LogTrim(*run[:2], after, before)
        except UNREADABLE:
            return
        self._some.set()

    def _keep(self, row: notes.LogRow) -> None:
        self._logs.append(row)
        self._bytes += len(row.lines)
        while self._bytes > MOST_BYTES:
            self._bytes -= len(self._logs.popleft().lines)

    async def step(self) -> None:
        await self._some.wait()
        self._some.clear()
        await self._write_all()
        await asyncio.sleep(PAUSE_S)

    async def flush(self) -> None:
        """Write what is left, for a short time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._write_all()

    async def _write_all(self) -> None:
        waiting, self._progress = self._progress, {}  # what is said meanwhile waits for the next time
        while waiting or self._logs or self._trims:
            progress, logs = _some_of(waiting), self._next_logs()
            trims = [] if self._logs else list(self._trims.values())  # after the last of the lines
            try:
                refusal = await self._write(progress, logs, trims)
            except AWAY as problem:
                self._put_back([*progress, *waiting.values()], logs)
                self._tell("is tried again", problem)
                self._some.set()
                return
            except BaseException:
                self._put_back([*progress, *waiting.values()], logs)
                raise
            if refusal is None:
                self._failures = 0
            else:
                self._tell("is dropped", refusal)
            for trim in trims:
                if self._trims.get(trim[:2]) is trim:  # a newer one may have come meanwhile
                    del self._trims[trim[:2]]

    async def _write(
        self, progress: list[notes.ProgressRow], logs: list[notes.LogRow], trims: list[notes.LogTrim]
    ) -> Exception | None:
        """Write all of it together, or each kind for itself if something is refused; return the reason of that."""
        try:
            await self._write_part(progress, logs, trims)
        except AWAY as problem:
            if not _is_refused(problem):
                raise
            await _write_most(progress, lambda part: self._write_part(part, (), ()))
            await _write_most(logs, lambda part: self._write_part((), part, ()))
            await _write_most(trims, lambda part: self._write_part((), (), part))
            return problem
        return None

    async def _write_part(
        self, progress: Sequence[notes.ProgressRow], logs: Sequence[notes.LogRow], trims: Sequence[notes.LogTrim]
    ) -> None:
        async with self._database.connection() as conn, in_one_go(conn):
            await notes.write(conn, self._worker_id, progress, logs, trims)

    def _next_logs(self) -> list[notes.LogRow]:
        rows: list[notes.LogRow] = []
        size = 0
        while self._logs and size < BATCH_BYTES and len(rows) < BATCH_ROWS:
            rows.append(self._logs.popleft())
            size += len(rows[-1].lines)
        self._bytes -= size
        return rows

    def _put_back(self, progress: list[notes.ProgressRow], logs: list[notes.LogRow]) -> None:
        for row in progress:
            self._progress.setdefault(row.task_id, row)  # a newer one wins
        self._logs.extendleft(reversed(logs))
        self._bytes += sum(len(row.lines) for row in logs)

    def _tell(self, what: str, problem: BaseException) -> None:
        self._failures += 1
        if is_worth_a_line(self._failures):
            log.warning("what tasks say while they run cannot be written and %s: %s", what, describe(problem))


async def _write_most(rows: Sequence[T], write: Callable[[Sequence[T]], Awaitable[None]]) -> None:
    """Write these rows of one kind, without those that are refused."""
    tries = count(1)

    def is_of_one(problem: Exception) -> bool:
        return is_about_content(problem) and next(tries) < MOST_REFUSALS

    try:
        await by_halves(rows, write, is_refusal=is_of_one, give_up=lambda row, problem: None)
    except AWAY as problem:
        if not _is_refused(problem):
            raise


def _some_of(waiting: dict[str, notes.ProgressRow]) -> list[notes.ProgressRow]:
    return [waiting.pop(task_id) for task_id in list(waiting)[:BATCH_ROWS]]


def _is_refused(problem: BaseException) -> bool:
    """Whether it would be refused again: for what it says, or because a right or a table is missing."""
    state = str(getattr(problem, "sqlstate", None) or "")
    return is_about_content(problem) or state.startswith("42")
