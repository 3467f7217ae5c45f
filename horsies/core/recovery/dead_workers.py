"""Finds workers that are dead, for certain or probably, and recovers their tasks without waiting (R-100, R-103).

Which workers there are is asked every few seconds; in between, a look is one system call for each worker of this host,
and one for the directory of the start journals, which changes when a worker starts or stops. Only when that finds
something new is the database asked at once. The server is asked about the liveness lock only for suspected workers, and
`decide.py` judges. Several workers may look at the same time:
each task is recovered under its claim, and therefore by only one of them. `look_at` says what the system knows about a
process. It answers only if it is sure: a process that may not be inspected counts as existing, and without `/proc` its
start is unknown.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import psycopg

from horsies.core.db import Connections, describe, is_about_content, is_held_up
from horsies.core.hooks import FailureReason, JobInterrupted
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery import apply, hooks, start_journal, sweep
from horsies.core.recovery.decide import Action, Death, Process, TaskShares, is_gone, is_in_sight, judge, share_out
from horsies.core.store import workers as worker_rows
from horsies.core.store.recovery import STEP
from horsies.core.store.task_reads import jobs
from horsies.core.store.workers import START, WHENEVER, Gone, Judge, Registered
from horsies.core.tasks.moves import InFlight
from horsies.core.types import TaskStatus

UNKNOWN = Process(None)

log = logging.getLogger("horsies.recovery")

LOOK_EVERY_S = 2.0
ASK_EVERY_S = 10.0  # for the registered workers, if nothing has happened on this host
SOON_S = 0.4  # until the next look, if tasks only wait for a process to end or for another sweep
LOOKS = 4
FIRST_LOOK_S = 10.0
GONE = "its worker's process is gone, and so is its session"
SILENT = "its worker's session is gone, and it has missed two heartbeats"


class DeadWorkers:
    """`watch` is called every `LOOK_EVERY_S`. Recovery that calls hooks uses a connection of `patient`."""

    def __init__(
        self,
        pool: Connections,
        patient: Connections,
        me: Judge,
        recovery: RecoveryConfig,
        config: WorkerRecoveryConfig,
        hook_caller: hooks.HookCaller,
        pulse: apply.MayJudge,
        *,
        on_ended: apply.OnEnded = apply.nobody,
        looks: Connections | None = None,
    ) -> None:
        self._pool = pool
        self._looks = looks or pool
        self._patient = patient
        self._me = me
        self._recovery = recovery
        self._config = config
        self._hook_caller = hook_caller
        self._pulse = pulse
        self._on_ended = on_ended
        self._dead: set[str] = set()  # found to be certainly dead at an earlier look
        self._has_looked = asyncio.Event()
        self._neighbours: list[Registered] = []  # the workers whose processes are in sight, at the last look
        # Workers elsewhere are found by their silence, which counts in their own intervals; ours is the best guess.
        interval_s = config.heartbeat_interval.total_seconds()
        self._ask_every_s = min(ASK_EVERY_S, max(LOOK_EVERY_S, interval_s / 3))
        self._ask_at = 0.0
        self._eager_until = 0.0
        self._journals_changed = start_journal.last_change()

    async def watch(self) -> None:
        """Look if there may be news."""
        if self._may_be_news():
            await self.look()

    def _may_be_news(self) -> bool:
        now = monotonic()
        changed = start_journal.last_change()
        if changed != self._journals_changed:
            self._journals_changed = changed
            self._eager_until = now + ASK_EVERY_S  # a worker that has just made its journal is not registered yet
        return (
            now >= self._ask_at - LOOK_EVERY_S / 2
            or now < self._eager_until
            or bool(self._dead)
            or any(is_gone(look_at(worker.pid), worker.process_start) for worker in self._neighbours)
        )

    async def look(self) -> None:
        """Find dead workers and recover their tasks."""
        known = self._dead
        try:
            for _ in range(LOOKS):
                # A worker that was found dead before can wait for the next look.
                if not await self._look_once() - known:
                    break
                await asyncio.sleep(SOON_S)
        finally:
            self._has_looked.set()

    def first(self, step: Callable[[], Awaitable[None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        """The same step, but not before the first look. Recovery by silence does not know the start journal, and would
        fail tasks of a worker that died long ago although they had never begun."""

        async def after_the_first_look() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_looked.wait(), FIRST_LOOK_S)
            await step()

        return after_the_first_look

    async def _look_once(self) -> set[str]:
        """The dead workers whose remaining tasks only have to wait for a moment."""
        judged = await self._judge_all()
        waiting = set()
        for worker, death in judged:
            try:
                if death is Death.CERTAIN:
                    if await self._recover(worker):
                        waiting.add(worker.worker_id)
                elif death is Death.PROBABLE and await self._is_really_silent():
                    await self._give_back_claims(worker)
            except psycopg.Error as problem:
                if not is_held_up(problem) and not is_about_content(problem):
                    raise
                log.warning("worker %s cannot be recovered now: %s", worker.worker_id, describe(problem))
        self._dead = {worker.worker_id for worker, death in judged if death is Death.CERTAIN}
        return waiting

    async def _judge_all(self) -> list[tuple[Registered, Death]]:
        self._ask_at = monotonic() + self._ask_every_s
        async with self._looks.connection() as conn:
            workers = await worker_rows.neighbours(conn, self._me)
            seen = [(worker, look_at(worker.pid) if is_in_sight(worker, self._me) else UNKNOWN) for worker in workers]
            suspects = [
                (worker, process)
                for worker, process in seen
                if judge(worker, self._me, process, is_lock_held=False) is not Death.UNPROVEN
            ]
            held = await worker_rows.held_liveness(conn, [w.liveness_key for w, _ in suspects]) if suspects else set()
        self._neighbours = [worker for worker in workers if is_in_sight(worker, self._me)]
        for worker_id in self._dead - {worker.worker_id for worker in workers}:
            start_journal.remove(worker_id)  # another worker has finished what this one had begun
        return [
            (worker, judge(worker, self._me, process, is_lock_held=worker.liveness_key in held))
            for worker, process in suspects
        ]

    async def _recover(self, dead: Registered) -> bool:
        if dead.worker_id not in self._dead:
            log.warning("worker %s is dead: its process %s is gone, and so is its session", dead.worker_id, dead.pid)
        swept = spared = 0
        after = START
        while True:
            async with self._pool.connection() as conn:
                found = await worker_rows.held(conn, [Gone(dead.worker_id, WHENEVER)], until=WHENEVER, after=after)
            shares = await self._share_out(dead, [one.task for one in found])
            await self._handle(shares)
            swept += len(shares.swept)
            spared += len(shares.spared)
            if len(found) < STEP:
                break
            after = found[-1].place
        is_waiting = spared > 0
        if swept or (dead.is_sweeping and not spared):
            is_waiting |= not await self._sweep(dead)
        # The row stays at the first look, because a statement of the dead worker may still be running in the server.
        if dead.worker_id in self._dead and not is_waiting:
            await self._delete_worker_row(dead)
        return is_waiting

    async def _share_out(self, dead: Registered, tasks: Sequence[InFlight]) -> TaskShares:
        pids = {task.worker_pid for task in tasks if task.status is TaskStatus.RUNNING}
        gone = {pid for pid in pids if is_gone(look_at(pid))}
        # The journal is read after the processes: a child that was still alive might have written a note in between.
        notes = await asyncio.to_thread(start_journal.read, dead.worker_id, dead.process_start) if gone else None
        return share_out(tasks, gone.__contains__, partial(start_journal.was_noted, notes))

    async def _handle(self, shares: TaskShares) -> None:
        """Tasks that are not enrolled follow the settings of the reaper, which would otherwise recover them (R-18)."""
        may_requeue = self._recovery.auto_requeue_stale_claimed
        if requeued := [task for task in shares.requeued if may_requeue or task.is_enrolled]:
            await apply.recover_in_parts(requeued, partial(self._requeue, reason=GONE), self._pool.connection)
        if shares.crashed and self._recovery.auto_fail_stale_running:
            await apply.recover_in_parts(shares.crashed, self._crash, self._pool.connection)

    async def _requeue(self, tasks: Sequence[InFlight], reason: str) -> list[InFlight]:
        async with self._pool.connection() as conn:
            recovered = await apply.recover_tasks(conn, tasks, Action.REQUEUE, reason, self._me.worker_id)
        self._on_ended(apply.of_workflows(recovered))  # a task past its deadline has expired
        return recovered

    async def _crash(self, tasks: Sequence[InFlight]) -> list[InFlight]:
        async with self._pool.connection() as conn:
            is_heard = self._hook_caller.has(JobInterrupted)
            views = await jobs(conn, [task.task_id for task in tasks]) if is_heard else []
            recovered = await apply.recover_tasks(conn, tasks, Action.RETRY_OR_FAIL, GONE, self._me.worker_id)
        self._on_ended(apply.of_workflows(recovered))
        ids = {task.task_id for task in recovered}
        interrupted = [view for view in views if view.id in ids]
        if interrupted:
            await self._hook_caller.interrupted(interrupted, reason=FailureReason.WORKER_CRASHED)
        return recovered

    async def _sweep(self, dead: Registered) -> bool:
        """False: another process is sweeping."""
        result = await sweep.sweep_workers(
            self._patient, [dead.worker_id], self._config, self._hook_caller,
            me=self._me.worker_id, spare=_is_not_for_a_sweep, on_ended=self._on_ended,
        )  # fmt: skip
        return result.lock_acquired

    async def _delete_worker_row(self, dead: Registered) -> None:
        async with self._pool.connection() as conn:
            is_deleted = await worker_rows.delete_row(conn, dead.worker_id)
        if is_deleted:
            start_journal.remove(dead.worker_id)

    async def _is_really_silent(self) -> bool:
        if not self._pulse.may_judge():
            return False
        async with self._pool.connection() as conn:
            return await apply.is_really_silent(conn, self._pulse)

    async def _give_back_claims(self, worker: Registered) -> None:
        """Return only its claims. Its started tasks wait for their threshold, because a worker that is only cut off
        stops them shortly before that (R-101). Enrolled tasks are left to the sweeper (R-65)."""
        if not self._recovery.auto_requeue_stale_claimed:
            return
        after = START
        while True:
            async with self._pool.connection() as conn:
                found = await worker_rows.held(conn, [Gone(worker.worker_id, WHENEVER)], until=WHENEVER, after=after)
            claimed = [one.task for one in found if one.task.status is TaskStatus.CLAIMED]
            mine = [task for task in claimed if not task.is_enrolled]
            if mine:
                await apply.recover_in_parts(mine, partial(self._requeue, reason=SILENT), self._pool.connection)
            if len(found) < STEP:
                return
            after = found[-1].place


def _is_not_for_a_sweep(task: InFlight) -> bool:
    return not task.is_enrolled or (task.status is TaskStatus.RUNNING and not is_gone(look_at(task.worker_pid)))


def look_at(pid: int | None) -> Process:
    """The process with this pid, as far as this process may see it."""
    if pid is None or pid <= 0:
        return UNKNOWN
    # The system is asked first, because /proc may hide processes of other users, and these are not gone.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return Process(False)
    except PermissionError:
        pass
    except OSError:
        return UNKNOWN
    stat = _stat(pid)
    return Process(True) if stat is None else Process(True, stat.has_ended, stat.start)


def process_start(pid: int) -> int | None:
    """When this process started, in ticks since boot (never wall-clock time, which a corrected clock would shift)."""
    stat = _stat(pid)
    return None if stat is None else stat.start


class _Stat(NamedTuple):
    has_ended: bool
    start: int


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read()
    except OSError:
        return None
    # The command name, in parentheses, may hold anything; the fields after it are plain.
    fields = text.rpartition(b")")[2].split()
    if len(fields) <= 19:
        return None
    state, threads, start = fields[0], int(fields[17]), int(fields[19])
    # The first thread of a process can end before the others; the process goes on until they have ended too.
    return _Stat(state in (b"Z", b"X") and threads <= 1, start)
