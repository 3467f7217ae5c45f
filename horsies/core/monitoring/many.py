"""What a person does to many tasks (M-49a): cancel them, send them again, or move those that wait to another queue or
priority. They are named by their ids, or by what they have in common.

First a dry run tells how many there are. Then they are changed in batches, each a statement and a transaction of its
own, so that nobody waits for long, and stopping halfway loses nothing: the same call continues. Every statement checks
the state of each task itself, so two people, or a person and a worker, never both act on the same state of a task. A
task that it does not apply to is left alone, and counted by the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from horsies.core.brokers.actions import CANCELLED, TaskActionErrorCode, can_be_rerun, is_cancellable
from horsies.core.db import Connection, by_halves, describe, is_about_content, is_transient
from horsies.core.models.monitoring import bulk, tasks
from horsies.core.models.queues import queue_name_problem
from horsies.core.monitoring import filters, task_queries
from horsies.core.monitoring.queries import ask
from horsies.core.producer.enqueue import new_task_ids
from horsies.core.producer.hub import can_exist
from horsies.core.store import many, rollup
from horsies.core.store.many import TaskState
from horsies.core.types import Err, Ok, TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

BATCH = 500
MOST = 10_000  # tasks that one call changes
MOST_IDS = 1_000  # of them that its answer names
EXAMPLES = 10
LOOKS = 200  # pages in a row without a task that could be changed; then a call ends
TRIES = 5  # for tasks that change while they are looked at
_ENDED = (TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED)
_ORDERS: tuple[tuple[frozenset[TaskStatus], tasks.SortBy, tasks.SortDir], ...] = (
    (filters.WAITING, "claim_order", "asc"),
    (filters.IN_FLIGHT, "started_at", "asc"),
    (frozenset(_ENDED), "ended_at", "desc"),
)
Code = TaskActionErrorCode


async def cancel_tasks(
    broker: PostgresBroker,
    ids: Sequence[str] = (),
    *,
    statuses: Sequence[TaskStatus | str] = (),
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    error_codes: Sequence[str] = (),
    include_running: bool = False,
    dry_run: bool = False,
    most: int = MOST,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """Cancel these tasks, or those of a group, that have not ended; running ones only with `include_running`."""
    group = filters.TaskFilter(task_names, queues, (), statuses, error_codes)
    return await _act(broker, ids, group, _Cancel(include_running), dry_run=dry_run, most=most)


async def rerun_tasks(
    broker: PostgresBroker,
    ids: Sequence[str] = (),
    *,
    statuses: Sequence[TaskStatus | str] = (),
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    error_codes: Sequence[str] = (),
    dry_run: bool = False,
    most: int = MOST,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """Send these tasks, or those of a group, that ended without success again, each of them once: a task that was sent
    again like this before is left alone."""
    group = filters.TaskFilter(task_names, queues, (), statuses, error_codes)
    return await _act(broker, ids, group, _Rerun(), dry_run=dry_run, most=most)


async def move_tasks(
    broker: PostgresBroker,
    ids: Sequence[str] = (),
    *,
    queue: str | None = None,
    priority: int | None = None,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    dry_run: bool = False,
    most: int = MOST,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """Give these waiting tasks, or those of a group, another queue, another priority, or both. A dry run that does not
    say where to tells which of them can be moved at all."""
    group = filters.TaskFilter(task_names, queues)
    action = _Move(queue, priority, is_anywhere=dry_run and queue is None and priority is None)
    return await _act(broker, ids, group, action, dry_run=dry_run, most=most)


class _Action(Protocol):
    """What is done. `refusal` says why a task is left alone, None if it is not; `apply` does it for a batch and returns
    which tasks were changed, with their new ids if there are any. A task that cannot be changed although there is no
    refusal is `tries` times looked at, and then `stuck`."""

    @property
    def statuses(self) -> tuple[TaskStatus, ...]: ...
    @property
    def tries(self) -> int: ...
    @property
    def stuck(self) -> Code: ...

    def check(self) -> None:
        """Raise if it makes no sense."""

    def refusal(self, state: TaskState | None) -> Code | None: ...

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class _Cancel:
    include_running: bool
    tries: int = TRIES
    stuck: Code = Code.TASK_NOT_CANCELLABLE

    @property
    def statuses(self) -> tuple[TaskStatus, ...]:
        running = (TaskStatus.RUNNING,) if self.include_running else ()
        return (TaskStatus.PENDING, TaskStatus.CLAIMED, *running)

    def check(self) -> None:
        pass

    def refusal(self, state: TaskState | None) -> Code | None:
        if state is None:
            return Code.TASK_NOT_FOUND
        if state.workflow_id is not None:
            return Code.TASK_IS_WORKFLOW_TASK
        return None if is_cancellable(state, include_running=self.include_running) else Code.TASK_NOT_CANCELLABLE

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, str]:
        cancelled = await many.cancel(conn, ids, CANCELLED, include_running=self.include_running)
        await rollup.count_cancelled(conn, cancelled)
        return {task.id: "" for task in cancelled}


@dataclass(frozen=True, slots=True)
class _Rerun:
    statuses: tuple[TaskStatus, ...] = _ENDED
    tries: int = 2  # it may have ended just then
    stuck: Code = Code.TASK_ALREADY_RERUN  # there is a task with the key that follows from this one

    def check(self) -> None:
        pass

    def refusal(self, state: TaskState | None) -> Code | None:
        if state is None:
            return Code.TASK_NOT_FOUND
        if state.workflow_id is not None:
            return Code.TASK_IS_WORKFLOW_TASK
        if state.status is TaskStatus.COMPLETED:
            return Code.TASK_HAS_COMPLETED
        return None if can_be_rerun(state) else Code.TASK_HAS_NOT_ENDED

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, str]:
        return await many.rerun(conn, ids, list(islice(new_task_ids(), len(ids))), once=True)


@dataclass(frozen=True, slots=True)
class _Move:
    queue: str | None
    priority: int | None
    is_anywhere: bool = False  # where to is not known yet, so no task is there already
    statuses: tuple[TaskStatus, ...] = (TaskStatus.PENDING,)
    tries: int = TRIES
    stuck: Code = Code.TASK_NOT_WAITING

    def check(self) -> None:
        if self.queue is None and self.priority is None and not self.is_anywhere:
            raise filters.BadQuestion("say where to: a queue, a priority, or both")
        if self.queue is not None and (problem := queue_name_problem(filters.checked_text("queue", self.queue))):
            raise filters.BadQuestion(problem)
        if self.priority is not None and (isinstance(self.priority, bool) or self.priority not in range(1, 101)):
            raise filters.BadQuestion(f"priority must be a whole number from 1 to 100, not {self.priority!r}")

    def refusal(self, state: TaskState | None) -> Code | None:
        if state is None:
            return Code.TASK_NOT_FOUND
        if state.workflow_id is not None:
            return Code.TASK_IS_WORKFLOW_TASK
        if state.status is not TaskStatus.PENDING:
            return Code.TASK_NOT_WAITING
        is_there = self.queue in (None, state.queue_name) and self.priority in (None, state.priority)
        return Code.TASK_ALREADY_THERE if is_there and not self.is_anywhere else None

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(await many.change_queue(conn, ids, self.queue, self.priority), "")


async def _act(
    broker: PostgresBroker,
    ids: Sequence[str],
    group: filters.TaskFilter,
    action: _Action,
    *,
    dry_run: bool,
    most: int,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    try:
        wanted = _checked(ids, group, action, most)
    except filters.BadQuestion as problem:
        return Err(tasks.MonitoringQueryError(tasks.MonitoringErrorCode.INVALID_ARGUMENT, str(problem)))
    if dry_run:
        return await (_preview(broker, list(ids), action) if ids else _count(broker, wanted, action))
    batches = _given(list(ids)) if ids else _found(broker, wanted)
    run = _Run(broker, action, most)
    try:
        return Ok(await run.all(batches))
    except _NoAnswer as problem:
        return Err(replace(problem.error, message=f"{run.so_far}{problem.error.message}"))
    except Exception as problem:
        message = f"{run.so_far}{broker.config.redact(describe(problem))}"
        code = tasks.MonitoringErrorCode.DB_OPERATION_FAILED
        return Err(tasks.MonitoringQueryError(code, message, is_transient(problem)))


def _checked(ids: Sequence[str], group: filters.TaskFilter, action: _Action, most: int) -> filters.TaskFilter:
    """The group, with the states that the action is about; raises if it is not clear which tasks are meant."""
    action.check()
    filters.refuse_text("ids", ids)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST:
        raise filters.BadQuestion(f"most must be a whole number from 1 to {MOST:,}, not {most!r}")
    if len(ids) > MOST:
        raise filters.BadQuestion(f"at most {MOST:,} tasks can be named, not {len(ids):,}")
    is_group = any((group.task_names, group.queues, group.statuses, group.error_codes))
    if bool(ids) == is_group:
        raise filters.BadQuestion("name tasks by their ids, or say what they have in common: one of the two")
    statuses = filters.members(TaskStatus, "statuses", group.statuses) or frozenset(action.statuses)
    if wrong := statuses - set(action.statuses):
        allowed, named = ", ".join(action.statuses), ", ".join(sorted(wrong))
        raise filters.BadQuestion(f"this is for tasks that are {allowed}, not {named}")
    chosen = replace(group, statuses=tuple(sorted(statuses)), plain_only=True)
    chosen.params()
    return chosen


async def _preview(broker: PostgresBroker, ids: list[str], action: _Action) -> tasks.MonitoringResult[bulk.BulkResult]:
    """What would become of the tasks with these ids."""

    async def look(conn: Connection) -> bulk.BulkResult:
        unique = list(dict.fromkeys(ids))
        states = await many.states(conn, filter(can_exist, unique))
        refusals = {task_id: action.refusal(states.get(task_id)) for task_id in unique}
        if isinstance(action, _Rerun):  # a state does not tell that
            left = [task_id for task_id, refusal in refusals.items() if refusal is None]
            refusals |= dict.fromkeys(await many.sent_again(conn, left), action.stuck)
        changed = [task_id for task_id, refusal in refusals.items() if refusal is None]
        examples = await task_queries.summaries(conn, changed[:EXAMPLES])
        return bulk.BulkResult(True, len(changed), _counted(refusals.values()), examples=examples)

    return await ask(broker, look)


async def _count(
    broker: PostgresBroker, group: filters.TaskFilter, action: _Action
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """How many tasks of the group there are. Which of them were sent again before is looked up for the first page."""
    is_rerun = isinstance(action, _Rerun)
    page = await task_queries.find_tasks(broker, group, limit=filters.MOST if is_rerun else EXAMPLES)
    if isinstance(page, Err):
        return page
    found = page.ok_value
    asked = [task.task_id for task in found.items] if is_rerun else []
    again = await ask(broker, partial(many.sent_again, ids=asked))
    if isinstance(again, Err):
        return again
    left = [task for task in found.items if task.task_id not in again.ok_value]
    return Ok(
        bulk.BulkResult(
            True,
            found.total - len(again.ok_value),
            {action.stuck.value: len(again.ok_value)} if again.ok_value else {},
            examples=tuple(left[:EXAMPLES]),
            is_exact=found.total_is_exact,
            is_complete=not is_rerun or found.total <= len(found.items),
        )
    )


class _NoAnswer(Exception):
    """The tasks of a group could not be looked for."""

    def __init__(self, error: tasks.MonitoringQueryError) -> None:
        super().__init__(error.message)
        self.error = error


async def _given(ids: list[str]) -> AsyncIterator[list[str]]:
    unique = list(dict.fromkeys(ids))
    for start in range(0, len(unique), BATCH):
        yield unique[start : start + BATCH]


async def _found(broker: PostgresBroker, group: filters.TaskFilter) -> AsyncIterator[list[str]]:
    """The tasks of the group, page by page along the index of each kind of state."""
    for states, sort_by, sort_dir in _ORDERS:
        chosen = [status for status in group.statuses if status in states]
        after = None if chosen else ""
        while after is None or after:
            part = replace(group, statuses=chosen)
            page = await task_queries.find_tasks(
                broker, part, sort_by=sort_by, sort_dir=sort_dir, limit=BATCH, after=after, counted=False
            )
            if isinstance(page, Err):
                raise _NoAnswer(page.err_value)
            yield [task.task_id for task in page.ok_value.items]
            after = page.ok_value.next_cursor or ""


@dataclass(slots=True)
class _Run:
    """One call: what was changed so far, and what was left alone."""

    broker: PostgresBroker
    action: _Action
    most: int
    changed: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)

    @property
    def so_far(self) -> str:
        return f"after {len(self.changed):,} tasks were changed: " if self.changed else ""

    async def all(self, batches: AsyncIterator[list[str]]) -> bulk.BulkResult:
        is_complete, idle = True, 0
        async for ids in batches:
            new = [task_id for task_id in ids if task_id not in self.seen]  # moved ones may be met again
            self.seen.update(new)
            room, before = self.most - len(self.changed), len(self.changed)
            if (new and not room) or idle >= LOOKS:
                is_complete = False
                break
            await self.broker.bridge.call(partial(self._batch, new[:room]))
            is_complete = len(new) <= room
            idle = 0 if len(self.changed) > before else idle + 1
        first = dict(list(self.changed.items())[:MOST_IDS])
        new_ids = tuple(new_id for new_id in first.values() if new_id)
        return bulk.BulkResult(
            False, len(self.changed), dict(self.skipped), tuple(first), new_ids, is_complete=is_complete
        )

    async def _batch(self, ids: list[str]) -> None:
        left = [task_id for task_id in ids if can_exist(task_id)]
        self.skipped += Counter({Code.TASK_NOT_FOUND.value: len(ids) - len(left)})
        if not left:
            return
        async with self.broker.hub.connection() as conn:
            for _ in range(self.action.tries):
                left = await self._try(conn, left) if left else []
        self.skipped += Counter({self.action.stuck.value: len(left)})

    async def _try(self, conn: Connection, ids: list[str]) -> list[str]:
        """Change these tasks; return those that could be changed by now, because they have just come back."""
        refused: list[str] = []

        async def apply(part: Sequence[str]) -> dict[str, str]:
            return await self.action.apply(conn, part)

        for done in await by_halves(
            ids, apply, is_refusal=is_about_content, give_up=lambda task_id, problem: refused.append(task_id)
        ):
            self.changed |= done
        self.skipped += Counter({Code.TASK_REFUSED_BY_DATABASE.value: len(refused)})
        left = [task_id for task_id in ids if task_id not in self.changed and task_id not in refused]
        states = await many.states(conn, left) if left else {}
        refusals = {task_id: self.action.refusal(states.get(task_id)) for task_id in left}
        self.skipped.update(_counted(refusals.values()))
        return [task_id for task_id, refusal in refusals.items() if refusal is None]


def _counted(refusals: Iterable[Code | None]) -> dict[str, int]:
    return dict(Counter(refusal.value for refusal in refusals if refusal is not None))
