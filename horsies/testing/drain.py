"""Drains a database in this process (X-11): claims what is due, starts it, runs it here, writes its end and advances
its workflow, one task after the other, until nothing is due. Tasks of names that the app does not know are left to
others, as a worker leaves them (O-31).

Everything is done with the statements and decisions of a worker: `store/tasks.py` claims, starts and moves,
`worker/finalize.py` says what a report means, and `workflows/advance.py` takes the steps of workflows. The code of
tasks runs in the caller's thread or on the caller's loop, never on the loop of the broker, whose connections it may
need itself.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from horsies.core.child.wire import Done
from horsies.core.db import Connection
from horsies.core.models.tasks import TaskError, TaskFailed, TaskResult
from horsies.core.models.workflow.registry import LocalBuilder
from horsies.core.producer.send import TaskHandle
from horsies.core.producer.waiter import result_of
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.sql import texts
from horsies.core.store import caps, names, sends, tasks, workflows
from horsies.core.store.recovery import expire_waiting
from horsies.core.tasks import execute
from horsies.core.tasks.context import packed
from horsies.core.tasks.definition import TaskDefinition
from horsies.core.tasks.moves import Claim, Move, Requeue
from horsies.core.types import TaskStatus
from horsies.core.worker import finalize
from horsies.core.worker.in_hand import HeldTask
from horsies.core.workflows import finish
from horsies.core.workflows.advance import Worklist
from horsies.core.workflows.handle import WorkflowHandle
from horsies.testing.running import Attempt, run_here, unknown

if TYPE_CHECKING:
    from horsies.core.app import Horsies
    from horsies.core.brokers.postgres import PostgresBroker

log = logging.getLogger("horsies.testing")
A_YEAR_S = 365 * 86_400.0
LEASE = timedelta(minutes=10)  # a claim of a drain that was killed can be taken over after this
WHOLE_LINE = 1_000_000  # tasks of one priority: the database of a test has fewer


@dataclass(frozen=True, slots=True)
class DrainedTask:
    """A task that ended while the database was drained."""

    task_id: str
    task_name: str
    status: TaskStatus
    result: TaskResult[Any, TaskError]
    workflow_id: str | None = None

    def __str__(self) -> str:
        return f"{self.task_name} {self.status.value}"


Until: TypeAlias = (
    TaskDefinition[Any, Any] | TaskHandle[Any] | WorkflowHandle[Any] | Callable[[list[DrainedTask]], object]
)


class DrainIncomplete(AssertionError):
    """Nothing is due any more, and what was waited for has not come."""


class Drain:
    """One run. `run` returns what ended, in order."""

    def __init__(self, app: Horsies, until: Until | None, max_tasks: int | None, raise_on_failure: bool) -> None:
        self._app = app
        self._broker: PostgresBroker = app.get_broker()
        self._until = until
        self._max_tasks = max_tasks
        self._raise_on_failure = raise_on_failure
        self._worker_id = f"drain:{socket.gethostname()[:100]}:{os.getpid()}"
        self._who = tasks.Claimant(self._worker_id, LEASE, enrolled=False)
        self._counting = caps.Counting()
        self._ended: list[DrainedTask] = []
        self._attempts = 0
        self._leaves_unknown = app.config.recovery.unknown_task_grace_ms > 0
        self._has_met_unknown = False

    async def run(self) -> list[DrainedTask]:
        """Work until nothing is due, or until it has what it was to wait for."""
        while not await self._is_over():
            held = await self._broker.bridge.call(self._next)
            if held is None:
                await self._give_up(await self._broker.bridge.call(self._left))
                break
            self._attempts += 1
            attempt = await self._run(held)
            ended = await self._broker.bridge.call(partial(self._finish, held, attempt))
            self._ended += ended
            if self._raise_on_failure:
                self._raise_failure(ended, attempt)
        return self._ended

    async def _is_over(self) -> bool:
        if self._max_tasks is not None and self._attempts >= self._max_tasks:
            return True
        match self._until:
            case None:
                return False
            case TaskHandle():
                info = (await self._until.info_async()).unwrap()
                return info is not None and info.status.is_terminal
            case WorkflowHandle():
                return (await self._until.status_async()).unwrap().is_terminal
            case TaskDefinition():
                return any(task.task_name == self._until.task_name for task in self._ended)
            case _:
                return bool(self._until(list(self._ended)))

    async def _give_up(self, left: str | None) -> None:
        """Nothing is due any more, except for what is `left` to others."""
        if left is not None:
            log.warning("drain %s", left)
        if self._until is None or await self._is_over():
            return
        ended = ", ".join(map(str, self._ended)) or "nothing"
        facts = [f"ended: {ended}", *([] if left is None else [left]), await self._broker.bridge.call(self._later)]
        what = f"nothing is due any more, and there was not yet {_described(self._until)}"
        raise DrainIncomplete("\n  ".join([what, *facts]))

    async def _left(self) -> str | None:
        """What was left to others, in words; None if nothing was."""
        if not self._has_met_unknown:
            return None
        async with self._broker.hub.connection() as conn:
            found, _ = await names.find_unknown(conn, self._queues, self._names, timedelta(0), {}, most=WHOLE_LINE)
        counts = Counter(task.task_name for task in found)
        which = ", ".join(f"{count} {name!r}" for name, count in sorted(counts.items()))
        return f"left to others, because this app has no such task: {which}" if which else None

    async def _later(self) -> str:
        async with self._broker.hub.connection() as conn:
            ahead = await tasks.look_ahead(conn, self._queues, within_s=A_YEAR_S)
        if ahead.due_s is None:
            return "no task waits for a later time"
        return f"the next task is due in {ahead.due_s:.0f} s: app.testing.travel(timedelta(...)) lets that time pass"

    # On the loop of the broker

    @property
    def _queues(self) -> list[str]:
        return [queue.name for queue in self._app.config.queues() if queue.max_concurrency != 0]

    async def _next(self) -> HeldTask | None:
        """Expire what is past its deadline, then claim and start one task."""
        await self._expire()
        while True:
            async with self._broker.hub.connection() as conn:
                line = await self._line(conn) if self._has_met_unknown else None
                rows = await tasks.claim(conn, self._who, self._order(), counting=self._counting, line=line)
                if not rows:
                    return None
                held = HeldTask(rows[0], is_async=False, token=0, claim=Claim(rows[0].id, rows[0].claim_seq))
                if self._leaves_unknown and held.row.task_name not in self._app.tasks:
                    self._has_met_unknown = True
                    await tasks.apply(conn, self._worker_id, [Requeue(held.claim)])
                    continue
                if await self._start(conn, held):
                    return held
            await self._advance(held)
            self._ended += await self._read({held.id: held.row.workflow_id})

    @property
    def _names(self) -> str:
        return texts(sorted(self._app.tasks))

    async def _line(self, conn: Connection) -> names.Line:
        """The tasks that are claimed from now on: those of known names, in each priority that has any."""
        ours = self._names
        found = await names.look(conn, self._queues, ours, {}, most=WHOLE_LINE)
        return names.Line(ours, tuple((one.level, names.BEGIN, names.END) for one in found if one.first is not None))

    def _order(self) -> tasks.ClaimOrder:
        config = self._app.config
        limits = [queue.max_concurrency for queue in config.queues() if queue.max_concurrency != 0]
        return tasks.ClaimOrder(
            queues=self._queues,
            takes=[1] * len(limits),
            caps=limits,
            budget=1,
            sync_budget=1,
            cluster_cap=config.cluster_wide_cap,
            hard=config.prefetch_buffer == 0,
            async_names=[],
        )

    async def _start(self, conn: Connection, held: HeldTask) -> bool:
        """Whether it is RUNNING now. Otherwise its deadline has passed, or its workflow does not allow it to run."""
        given = (self._worker_id, socket.gethostname(), [held.claim], [os.getpid()], ["drain"])
        if held.row.workflow_id is None:
            if held.id in await tasks.start(conn, *given):
                return True
            await tasks.apply(conn, self._worker_id, [finalize.of_deadline(held, self._worker_id)])
            return False
        check = (await tasks.start_nodes(conn, *given)).get(held.id)
        if check is not None and check.is_started:
            return True
        move: Move = Requeue(held.claim)
        if check is not None and check.workflow.is_terminal:
            await workflows.cancel_tasks(conn, [held.id], finish.CANCELLED.result or "")
        elif check is not None and check.is_overdue:
            move = finalize.of_deadline(held, self._worker_id)
        await tasks.apply(conn, self._worker_id, [move])
        return False

    async def _finish(self, held: HeldTask, attempt: Attempt) -> list[DrainedTask]:
        """Write the end of the attempt, then advance the workflow; what has ended by that."""
        move = finalize.of_report(held, _done(attempt.report))
        async with self._broker.hub.connection() as conn:
            await tasks.apply(conn, self._worker_id, [move])
        await self._advance(held)
        return await self._read({held.id: held.row.workflow_id})

    async def _advance(self, held: HeldTask) -> None:
        if held.row.workflow_id is not None:
            await Worklist(tasks=[held.id]).work_off(self._broker.hub, LocalBuilder(self._app))

    async def _expire(self) -> None:
        """End tasks and workflows past their deadline, and let their workflows go on."""
        hub, builder = self._broker.hub, LocalBuilder(self._app)
        async with hub.connection() as conn:
            ahead = await tasks.look_ahead(conn)
        if ahead.workflows_s == 0:
            await Reconciler(hub, builder, timedelta(0)).expire(math.inf)
        while ahead.tasks_s == 0:
            async with hub.connection() as conn:
                expired = sorted(await expire_waiting(conn))
            if not expired:
                break
            await Worklist(tasks=[task.id for task in expired if task.workflow_id]).work_off(hub, builder)
            self._ended += await self._read({task.id: task.workflow_id for task in expired})

    async def _read(self, wanted: Mapping[str, str | None]) -> list[DrainedTask]:
        """Those of the tasks that have ended; the mapping is from their ids to their workflows."""
        async with self._broker.hub.connection() as conn:
            rows = [row for row in await sends.ended(conn, list(wanted)) if row.status is not None]
        return [self._drained(row, wanted[row.task_id]) for row in rows]

    def _drained(self, row: sends.EndedTask, workflow_id: str | None) -> DrainedTask:
        known = self._app.tasks.get(row.task_name or "")
        result = result_of(row.task_id, row, known.codec.result if known is not None else None)
        assert row.status is not None
        return DrainedTask(row.task_id, row.task_name or "", row.status, result, workflow_id)

    # Where the caller is

    async def _run(self, held: HeldTask) -> Attempt:
        row = held.row
        task = self._app.tasks.get(row.task_name)
        if task is None:
            return unknown(row.task_name)
        due, options = row.enqueued_at.timestamp(), held.options
        about = (row.id, row.claim_seq, row.retry_count + 1, row.queue_name, due, options.timeout_ms)
        facts = packed(*about, row.workflow_id, options.node)
        return await run_here(task, row.args, row.kwargs, facts, self._app.testing.ways)

    def _raise_failure(self, ended: list[DrainedTask], attempt: Attempt) -> None:
        for task in ended:
            if task.status is TaskStatus.FAILED and task.result.err is not None:
                raise TaskFailed(task.result.err) from attempt.raised


def _described(until: Until) -> str:
    if isinstance(until, TaskDefinition):
        return f"the end of a {until.task_name!r}"
    if isinstance(until, TaskHandle):
        return f"the end of task {until.task_id}"
    if isinstance(until, WorkflowHandle):
        return f"the end of workflow {until.workflow_id}"
    return "what until= asks for"


def _done(report: execute.Report) -> Done:
    """As a child would report it."""
    ok, result, code, message, leave_ms = report
    return Done(ok, result, code, message, stopped=False, run_ns=0, rss_kb=0, leave_ms=leave_ms)
